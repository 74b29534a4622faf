-- prelude_tag: finish tags of a pool, joined in front of pool and settle.
--
-- Tags and virtual time are numbers in units of cost / weight (whole tokens),
-- kept in one sorted set: the finish tag of every tenant served lately, and
-- under TAG_TIME the pool's virtual time V. Tags further behind V than four
-- bursts are dropped now and then, so a tag that is not there is read as being
-- that far behind: what is forgotten never turns into credit.

local TAG_TIME = '_v'
local TAG_BURSTS = 4

-- tag_text prints a tag so that reading it back gives the same number. Most are
-- whole, which are printed in a third of the time.
local function tag_text(x)
  return string.format(x % 1 == 0 and x < 1000000000000000 and x > -1000000000000000 and '%d' or '%.17g', x)
end

-- tag_floor is the least tag that is kept.
local function tag_floor(v, burst_u)
  return v - TAG_BURSTS * burst_u / 1000000
end

-- tag_correct lowers a tenant's tag for micro-tokens given back, or raises it
-- for those charged (delta_u < 0). V stays: what others were granted meanwhile
-- is not taken back. Without V no turn was given lately: nothing to correct.
local function tag_correct(key, tenant, weight, delta_u, burst_u)
  local t = redis.call('ZMSCORE', key, TAG_TIME, tenant)
  if t[1] and (t[2] or delta_u < 0) then
    local least = tag_floor(tonumber(t[1]), burst_u)
    local f = t[2] and tonumber(t[2]) or least
    redis.call('ZADD', key, tag_text(math.max(least, f - delta_u / 1000000 / weight)), tenant)
  end
end
