-- prelude_store: reads and writes of single buckets, joined in front of every
-- script.

-- bucket_write stores a level. It lives until it is full again, rounded up, so
-- that expiry never forgives a debt; under any limit seen, so that nothing is
-- gained by limits that go up and down; and a hold's length at least, so that
-- who is forgotten has not asked for so long.
local function bucket_write(key, now, stamp, level, limit_u, period_us, burst_u, held)
  stamp = math.max(now, stamp)
  local span = 0
  if held then
    limit_u, period_us, burst_u, span = held.limit, held.period, held.burst, held.span
  end
  local full = stamp - now + (limit_u == 0 and EXACT or fill(burst_u - level, limit_u, period_us))
  local ttl = math.min(MAX_TTL_MS, math.floor((math.max(HOLD, full) + span + 999) / 1000) + 1)
  redis.call('SET', key, bucket_pack(stamp, level, limit_u, period_us, burst_u, held), 'PX', string.format('%d', ttl))
end

-- bucket_read parses what is stored at key, and writes down what must be.
local function bucket_read(key, now, limit_u, period_us, burst_u)
  local tokens, stamp, level, held = bucket_parse(redis.call('GET', key), now, limit_u, period_us, burst_u)
  if held and held.say then
    bucket_write(key, now, stamp, level, limit_u, period_us, burst_u, held)
    held.say = false
  end
  return tokens, stamp, level, held
end
