-- prelude_bucket: token buckets, joined in front of every script.
--
-- A bucket is the string "<tokens_u>:<stamp_us>": micro-tokens (1 u = 1e-6
-- token, negative = debt) as of a Redis time in µs. An absent bucket is full.
-- All numbers are integers below 2^53, which Lua's doubles hold exactly; they
-- are printed with %d alone, because tostring cuts them to 14 digits.

local EXACT = 9007199254740992 -- 2^53, larger results are clipped to it
local MAX_TTL_MS = 315360000000 -- ten years

-- redis_now returns the server's time in µs.
local function redis_now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- flow returns what dt_us bring, rounded down.
local function flow(dt_us, limit_u, period_us)
  return math.min(EXACT, math.floor(dt_us * limit_u / period_us))
end

-- fill is its inverse: the least dt_us with flow(dt_us) >= tokens_u. The product
-- may round below the true quotient, hence the second look.
local function fill(tokens_u, limit_u, period_us)
  local dt = math.min(EXACT, math.ceil(tokens_u * period_us / limit_u))
  if flow(dt, limit_u, period_us) < tokens_u then
    dt = dt + 1
  end
  return dt
end

-- bucket_parse returns stored tokens, their stamp, and the level now. Tokens
-- above a lowered burst are cut. A stamp ahead of now means that the clock
-- went back: no refill until it has caught up, which takes one period at most.
local function bucket_parse(packed, now, limit_u, period_us, burst_u)
  if not packed then
    return burst_u, now, burst_u
  end
  local tokens, stamp = string.match(packed, '^(-?%d+):(%d+)$')
  tokens, stamp = math.min(tonumber(tokens), burst_u), tonumber(stamp)
  if stamp - now > period_us then
    stamp = now
  end
  local dt = math.max(0, now - stamp)
  return tokens, stamp, math.min(burst_u, tokens + flow(dt, limit_u, period_us))
end

-- bucket_read does it with what is stored at key.
local function bucket_read(key, now, limit_u, period_us, burst_u)
  return bucket_parse(redis.call('GET', key), now, limit_u, period_us, burst_u)
end

-- bucket_wait tells how long until cost_u is covered, in µs: 0 now, -1 never.
-- It is tight: a µs less would not do. A cost above the burst passes only when
-- max_debt_u allows the difference, and then from a full bucket.
local function bucket_wait(now, tokens, stamp, level, limit_u, period_us, burst_u, cost_u, max_debt_u)
  if limit_u == 0 or cost_u - burst_u > math.max(0, max_debt_u) then
    return -1
  end
  local need = math.min(cost_u, burst_u)
  if level >= need then
    return 0
  end
  return stamp + fill(need - tokens, limit_u, period_us) - now
end

-- bucket_pack is the text of a level as of stamp.
local function bucket_pack(stamp, level)
  return string.format('%d:%d', level, stamp)
end

-- bucket_write stores a level. It lives until it is full again, rounded up, so
-- that expiry never forgives a debt.
local function bucket_write(key, now, stamp, level, limit_u, period_us, burst_u)
  stamp = math.max(now, stamp)
  local full = stamp - now + fill(burst_u - level, limit_u, period_us)
  local ttl = math.min(MAX_TTL_MS, math.floor((full + 999) / 1000) + 1)
  redis.call('SET', key, bucket_pack(stamp, level), 'PX', string.format('%d', ttl))
end
