-- prelude_take: one decision of an admit call, joined in front of it. t is the
-- call: now, inc, rates; nb buckets, nl counters, nc claims keys of each of its n
-- decisions; stored, the texts of all buckets; claims, whether there are any.
-- Decision d = 1..n, whose arguments begin at c and whose buckets are
-- k = (d-1)*nb+i, counters k = n*nb+(d-1)*nl+j, claims k = n*(nb+nl)+(d-1)*nc+m:
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

local picked, costs, leases = {}, {}, {} -- of the present decision

-- take_check fills in the reply about d from reply[r+1] on and returns the status.
local function take_check(t, d, c, reply, r)
  local status, stale, nb, nl, nc = 1, false, t.nb, t.nl, t.nc
  for i = 1, nb do
    local a, k = c + 2 * i, (d - 1) * nb + i
    local rate, cost = t.rates[tonumber(ARGV[a])], tonumber(ARGV[a + 1])
    local b, wait = once_bucket(t, KEYS[k], t.stored[k], rate), 0
    if b.level < cost or rate.limit == 0 then
      wait = bucket_wait(t.now, b.tokens, b.stamp, b.level, rate, cost, rate.max_debt, b.held)
      status = wait == 0 and status or 0
    end
    picked[i], costs[i] = b, cost
    reply[r + 2 * i - 1], reply[r + 2 * i] = rate.limit == 0 and 0 or b.level, wait
  end
  r = r + 2 * nb
  for j = 1, nl do
    local a, k = c + 2 * nb + 2 * j, t.n * nb + (d - 1) * nl + j
    local l = once_lease(t, KEYS[k])
    local full = lease_decide(l, tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[c + 1]))
    status, stale = full == 1 and 0 or status, stale or full == 2
    leases[j], reply[r + j] = l, full
  end
  r = r + nl
  for m = 1, nc do
    local k = t.n * (nb + nl) + (d - 1) * nc + m
    local claimed = t.claims and redis.call('EXISTS', KEYS[k]) or 0
    status, reply[r + m] = claimed == 1 and 0 or status, claimed
  end
  return status == 1 and stale and 2 or status
end

-- take_decide is one decision. Its status goes to reply[r].
local function take_decide(t, d, c, reply, r)
  if t.now > tonumber(ARGV[c]) then
    reply[r] = 3
    for i = r + 1, r + 2 * t.nb + t.nl + t.nc do
      reply[i] = 0
    end
    return
  end
  reply[r] = 1 -- in its place first: a list that grows in order costs least
  local status = take_check(t, d, c, reply, r)
  reply[r] = status
  if status ~= 1 then
    return
  end
  for i = 1, t.nb do
    if costs[i] > 0 then
      reply[r + 2 * i - 1] = once_take(t, picked[i], costs[i])
    end
  end
  for j = 1, t.nl do
    local a = c + 2 * t.nb + 2 * j
    once_state(t, leases[j], tonumber(ARGV[a + 1]), tonumber(ARGV[c + 1]))
  end
end
