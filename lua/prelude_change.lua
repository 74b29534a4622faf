-- prelude_change: what becomes of a bucket when limits change, or when replicas
-- disagree on them. Joined in front of every script.
--
-- A bucket names the burst and the rate that stand. Who asks with less makes that
-- stand at once, and the level shrinks as the burst does; a debt does not. Who
-- asks with more says so: it writes an instant, hold, and keeps to what stands
-- until then. Who asks with what stands strikes a hold out. So more begins at a
-- hold that nobody has struck out, with the tokens that were there then. Every
-- ask may write these statements, a refused one too; they change no level.
--
-- span is the longest time, in µs, in which any rate seen would fill the bucket.
-- The key outlives what stands by as much: forgotten means full for everybody.

-- change_agree compares what stands, as stored, with what own asks for. Returns
-- tokens and stamp under what stands now, and that as a rate with fields besides:
-- hold, 0 if it is all of own; span, 0 if own's is the longest; say, whether it
-- must be written even if nothing is taken. Its helpers are inside it: every call
-- of a script makes the functions outside anew.
local function change_agree(now, tokens, stamp, stands, hold, span, own)
  local function slower(a, b)
    return a.limit * b.period < b.limit * a.period
  end
  local function least(a, b) -- b's figures where both are equal
    local rate = slower(a, b) and a or b
    return { limit = rate.limit, period = rate.period, burst = math.min(a.burst, b.burst) }
  end
  local function advance(at)
    tokens = math.min(stands.burst, tokens + flow(math.max(0, at - stamp), stands.limit, stands.period))
    stamp = math.max(stamp, at)
  end
  local mine, say = fill(own.burst, own.limit, own.period), false
  if own.burst < stands.burst or slower(own, stands) then
    advance(now)
    if own.burst < stands.burst and tokens > 0 then
      tokens = math.floor(tokens * own.burst / stands.burst)
    end
    span, hold, say = math.max(span, fill(stands.burst, stands.limit, stands.period)), 0, true
  end
  local new = least(stands, own)
  if new.burst == own.burst and not slower(new, own) then
    say = say or (hold > 0 and hold < now + HOLD / 2)
    hold = 0
  elseif hold == 0 or hold > now then
    say = say or hold == 0
    span, hold = math.max(span, mine), hold == 0 and now + HOLD or math.min(hold, now + HOLD)
  else
    advance(hold)
    span, hold = math.max(span, fill(stands.burst, stands.limit, stands.period)), 0
    new = { limit = own.limit, period = own.period, burst = own.burst }
  end
  new.hold, new.say, new.span = hold, say, (hold > 0 or span > mine) and span or 0
  new.text = string.format(':%d:%d:%d', new.burst, new.limit, new.period)
  if new.hold > 0 or new.span > 0 then
    new.text = new.text .. string.format(':%d:%d', new.hold, new.span)
  end
  return tokens, stamp, new
end
