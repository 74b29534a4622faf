-- prelude_flow: time, rates and refill, joined in front of every script.
--
-- All numbers are integers below 2^53, which Lua's doubles hold exactly; they
-- are printed with %d alone, because tostring cuts them to 14 digits.

local EXACT = 9007199254740992 -- 2^53, larger results are clipped to it
local MAX_TTL_MS = 315360000000 -- ten years
local HOLD = 1000000 -- µs from saying that one wants more to having it, see prelude_change

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

-- rate_of makes a rate of its arguments. Its text is how a bucket names it; equal
-- texts spare a script to take them apart. max_debt is for the caller to set.
local function rate_of(limit, period, burst)
  return {
    limit = tonumber(limit), period = tonumber(period), burst = tonumber(burst),
    text = ':' .. burst .. ':' .. limit .. ':' .. period, max_debt = 0,
  }
end
