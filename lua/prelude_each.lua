-- prelude_each: the decisions of a plain admit, in order (see prelude_plain). Each is
-- as prelude_take makes it.
--
-- KEYS[k]          bucket i of decision d at k = (d-1)*nb+i,
--                  counter j at k = n*nb+(d-1)*nl+j
-- KEYS[n*(nb+nl)+(d-1)*nc+m]    claims m
--
-- per decision, from c on:
-- ARGV[c]          not_after
-- ARGV[c+1]        seq
-- ARGV[c+2*i]      rate of bucket i
-- per counter, a = c+2*nb+2*j:
-- ARGV[a]          cap
-- ARGV[a+1]        want

for d = 1, plain and n or 0 do
  local c, r, status = open + (d - 1) * step, 3 + (d - 1) * each, 1
  local buckets, counters, others = nb, nl, nc
  if now > ARGV[c] + 0 then
    buckets, counters, others, status = 0, 0, 0, 3
    for m = r + 1, r + each - 1 do
      reply[m] = 0
    end
  end
  for i = 1, buckets do
    local k = (d - 1) * nb + i
    if level[met and met[KEYS[k]] or k] < reply[r + 2 * i] then
      status = 0
    end
  end
  for j = 1, counters do -- as lease_decide in prelude_lease
    local k, a, full = n * nb + (d - 1) * nl + j, c + 2 * nb + 2 * j, 0
    local v = level[met and met[KEYS[k]] or k]
    local own, total, want, most = v[1] + 0, v[2], ARGV[a + 1] + 0, ARGV[a] + 0
    if v[4] + 0 < ARGV[c + 1] + 0 then
      full = total - own + want > most and 1 or 0
    else
      full = want > own and 2 or (total > most and 1 or 0)
    end
    reply[r + 2 * nb + j] = full
    status = full == 0 and status or ((full == 1 or status == 0) and 0 or 2)
  end
  for m = 1, others do
    local there = claimed and call('EXISTS', KEYS[n * (nb + nl) + (d - 1) * nc + m]) or 0
    status, reply[r + 2 * nb + nl + m] = there == 1 and 0 or status, there
  end
  reply[r] = status
  for i = 1, buckets do
    local k = (d - 1) * nb + i
    local f, cost, wait = met and met[KEYS[k]] or k, reply[r + 2 * i], 0
    local left, text = level[f], stored[f]
    if status == 1 and cost > 0 then
      left = left - cost
      level[f], stored[f] = left, true
    elseif left < cost then -- as bucket_wait in prelude_bucket
      local a, tokens, past = 4 * ARGV[c + 2 * i] - 3, left, 0
      if text ~= true then
        local colon = find(text, ':', 1, true)
        tokens, past = sub(text, 1, colon - 1), now - sub(text, colon + 1, find(text, ':', colon + 1, true) - 1)
      end
      local limit, period, need = rates[a], rates[a + 1], cost - tokens
      wait = math.min(TOP, math.ceil(need * period / limit))
      wait = (floor(wait * limit / period) < need and wait + 1 or wait) - past
    end
    reply[r + 2 * i - 1], reply[r + 2 * i] = left, wait
  end
  for j = 1, status == 1 and nl or 0 do
    local k, a = n * nb + (d - 1) * nl + j, c + 2 * nb + 2 * j
    local f = met and met[KEYS[k]] or k
    local v = level[f]
    if v[4] + 0 < ARGV[c + 1] + 0 then
      stored[f] = stored[f] or (v[2] > 0 and 'GT' or 'NX') -- how its key lives longer, see prelude_spend
      v[1], v[2], v[4] = ARGV[a + 1], v[2] - v[1] + ARGV[a + 1], ARGV[c + 1]
    end
  end
end
