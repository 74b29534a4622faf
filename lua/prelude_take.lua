-- prelude_take: one decision of an admit call, joined in front of it. Decision
-- d = 1..n of the call has its arguments from c on, its buckets at k =
-- (d-1)*nb+i, counters at k = n*nb+(d-1)*nl+j, claims at k = n*(nb+nl)+(d-1)*nc+m:
--
-- KEYS[k]     each of them
--
-- ARGV[c]     not_after   Redis time, µs; later than this nothing is taken
-- ARGV[c+1]   seq         its sequence in the incarnation, > 0; any if nl is 0
-- per bucket, a = c+2*i:
-- ARGV[a]     rate        which of the call's rates, 1..nr
-- ARGV[a+1]   cost        micro-tokens, >= 0; 0 takes nothing, but debt refuses it
-- per counter, a = c+2*nb+2*j:
-- ARGV[a]     cap         slots of the whole fleet
-- ARGV[a+1]   want        > 0; slots of this replica with this one: held + pending

-- Of the call, set by admit: buckets, counters and claims keys of each of its n
-- decisions; its rates; the texts of all buckets; whether there is any claim.
local n, nb, nl, nc, rates, stored, claims
local picked, costs = {}, {} -- buckets of the present decision, and what it takes

-- take_buckets fills in the reply about buckets; true: all are covered.
local function take_buckets(d, c, reply, r)
  local covered = true
  for i = 1, nb do
    local a, k = c + 2 * i, (d - 1) * nb + i
    local rate, cost = rates[tonumber(ARGV[a])], tonumber(ARGV[a + 1])
    local b, wait = once_bucket(KEYS[k], stored[k], rate), 0
    if b.level < cost or rate.limit == 0 then
      wait = bucket_wait(now, b.tokens, b.stamp, b.level, rate, cost, rate.max_debt, b.held)
      covered = covered and wait == 0
    end
    picked[i], costs[i] = b, cost
    reply[r + 2 * i - 1], reply[r + 2 * i] = rate.limit == 0 and 0 or b.level, wait
  end
  return covered
end

-- take_others does so for counters and claims, and returns the status.
local function take_others(d, c, reply, r, status)
  local stale = false
  for j = 1, nl do
    local a, k = c + 2 * nb + 2 * j, n * nb + (d - 1) * nl + j
    local full = lease_decide(once_lease(KEYS[k]), tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[c + 1]))
    status, stale, reply[r + j] = full == 1 and 0 or status, stale or full == 2, full
  end
  for m = 1, nc do
    local k = n * (nb + nl) + (d - 1) * nc + m
    local claimed = claims and redis.call('EXISTS', KEYS[k]) or 0
    status, reply[r + nl + m] = claimed == 1 and 0 or status, claimed
  end
  return status == 1 and stale and 2 or status
end

-- take_decide is one decision. Its reply begins with the status, at r.
local function take_decide(d, c, reply, r)
  if now > tonumber(ARGV[c]) then
    reply[r] = 3
    for i = r + 1, r + 2 * nb + nl + nc do
      reply[i] = 0
    end
    return
  end
  reply[r] = 1 -- in its place first: a list that grows in order costs least
  local status = take_buckets(d, c, reply, r) and 1 or 0
  if nl + nc > 0 then
    status = take_others(d, c, reply, r + 2 * nb, status)
  end
  reply[r] = status
  if status ~= 1 then
    return
  end
  for i = 1, nb do
    if costs[i] > 0 then
      reply[r + 2 * i - 1] = once_take(picked[i], costs[i])
    end
  end
  for j = 1, nl do
    local a, k = c + 2 * nb + 2 * j, n * nb + (d - 1) * nl + j
    once_state(once_lease(KEYS[k]), tonumber(ARGV[a + 1]), tonumber(ARGV[c + 1]))
  end
end
