-- prelude_store: reads and writes of single buckets, joined in front of every
-- script.

-- bucket_write stores a level under a rate, or under what stands in its place. It
-- lives until it is full again, rounded up, so that expiry never forgives a
-- debt; under any rate seen, so that limits which go up and down gain nothing;
-- and a hold's length at least: who is forgotten has not been asked for so long.
local function bucket_write(key, now, stamp, level, rate)
  stamp = math.max(now, stamp)
  local full = math.max(HOLD, stamp - now + fill(rate.burst - level, rate.limit, rate.period))
  local ttl = math.min(MAX_TTL_MS, math.floor((full + (rate.span or 0) + 999) / 1000) + 1)
  redis.call('SET', key, bucket_pack(stamp, level, rate), 'PX', string.format('%d', ttl))
end

-- bucket_read parses what is stored at key, and writes down what must be.
local function bucket_read(key, now, rate)
  local tokens, stamp, level, held = bucket_parse(redis.call('GET', key), now, rate)
  if held and held.say then
    bucket_write(key, now, stamp, level, held)
    held.say = false
  end
  return tokens, stamp, level, held
end
