-- prelude_spend: what a plain admit writes, and its reply (see prelude_plain).
--
-- KEYS[i]          buckets
-- KEYS[nb+j]       counters
--
-- ARGV[1]          inc
-- ARGV[2]          ttl
-- ARGV[c+1]        seq
-- ARGV[c+2*i] ARGV[c+2*i+1]    rate and cost of bucket i
-- ARGV[a] ARGV[a+1] ARGV[a+2]  limit, period, burst of its rate, a = 4*rate+3
-- ARGV[c+2*nb+2*j+1]           want of counter j

if plain then
  for i = 1, granted and nb or 0 do
    local a, cost = 4 * ARGV[c + 2 * i] + 3, ARGV[c + 2 * i + 1] + 0
    if cost > 0 then
      local limit, period, left = ARGV[a] + 0, ARGV[a + 1] + 0, reply[2 * i + 2] - cost
      local need, ttl = ARGV[a + 2] - left, '1001' -- ms of a HOLD, at least: see bucket_write
      local full = math.ceil(need * period / limit)
      if full > 999999 then
        full = math.floor(full * limit / period) < need and full + 1 or full
        ttl = string.format('%d', math.min(315360000000, math.floor((full + 999) / 1000) + 1))
      end
      redis.call('SET', KEYS[i], string.format('%d:%d%s', left, now, stored[i]), 'PX', ttl)
      reply[2 * i + 2] = left
    end
  end
  for j = 1, granted and nl or 0 do
    local key, v, ttl = KEYS[nb + j], held[j], ARGV[2] + 1000
    local entry = string.format('%s:%d:%s', ARGV[c + 2 * nb + 2 * j + 1], lapse, ARGV[c + 1])
    redis.call('HSET', key, '_t', v[2], '_x', v[3], ARGV[1], entry)
    if redis.call('PTTL', key) < ttl then
      redis.call('PEXPIRE', key, string.format('%d', ttl))
    end
  end
  reply[3] = granted and 1 or 0
  return reply
end
