-- prelude_change: what becomes of a bucket when limits change, or when replicas
-- disagree on them. Joined in front of every script.
--
-- A bucket names the burst and speed that stand, speed being micro-tokens per
-- second. Who asks with less makes that stand at once, and the level shrinks as
-- the burst does; a debt does not. Who asks with more says so: it writes an
-- instant, hold, and keeps to what stands until then. Who asks with what stands
-- strikes a hold out. So more begins at a hold that nobody has struck out, with
-- the tokens that were there then. Every ask may write these statements, a
-- refused one too; they change no level.
--
-- span is the longest time, in µs, in which any rate seen would fill the bucket.
-- The key outlives what stands by as much: forgotten means full for everybody.

local HOLD = 1000000 -- µs from saying that one wants more to having it

-- rate_speed is what two rates are compared by.
local function rate_speed(limit_u, period_us)
  return math.min(EXACT, math.floor(limit_u * 1000000 / period_us))
end

-- rate_span is how long the rate takes to fill an empty bucket.
local function rate_span(speed, burst_u)
  return speed == 0 and EXACT or fill(burst_u, speed, 1000000)
end

-- change_lower makes less stand: the level as of now, in proportion to the burst.
local function change_lower(now, tokens, stamp, old, new)
  local level = math.min(old.burst, tokens + flow(math.max(0, now - stamp), old.limit, old.period))
  if new.burst < old.burst and level > 0 then
    level = math.floor(level * new.burst / old.burst)
  end
  return level, math.max(now, stamp)
end

-- change_agree compares what stands, as stored, with what own asks for. Returns
-- tokens and stamp under what stands now, and that, as held: limit, period, burst,
-- speed; hold, 0 if it is all of own; span, 0 if own's is the longest; say.
local function change_agree(now, tokens, stamp, burst, speed, hold, span, own)
  local function rate(b, s) -- own's figures are exact where speeds are equal
    local same = s == own.speed
    return { burst = b, speed = s, limit = same and own.limit or s, period = same and own.period or 1000000 }
  end
  local mine, stands, say = rate_span(own.speed, own.burst), rate(burst, speed), false
  if own.burst < burst or own.speed < speed then
    local new = rate(math.min(burst, own.burst), math.min(speed, own.speed))
    span, hold, say = math.max(span, rate_span(speed, burst)), 0, true
    tokens, stamp = change_lower(now, tokens, stamp, stands, new)
    stands = new
  end
  if stands.burst == own.burst and stands.speed == own.speed then
    say = say or (hold > 0 and hold < now + HOLD / 2)
    hold = 0
  elseif hold == 0 or hold > now then
    say = say or hold == 0
    span, hold = math.max(span, mine), hold == 0 and now + HOLD or math.min(hold, now + HOLD)
  else
    tokens = math.min(stands.burst, tokens + flow(math.max(0, hold - stamp), stands.limit, stands.period))
    span, stamp, hold = math.max(span, rate_span(stands.speed, stands.burst)), math.max(stamp, hold), 0
    stands = rate(own.burst, own.speed)
  end
  stands.hold, stands.say = hold, say
  stands.span = (hold > 0 or span > mine) and span or 0
  return tokens, stamp, stands
end
