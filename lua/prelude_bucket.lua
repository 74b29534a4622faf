-- prelude_bucket: token buckets, joined in front of every script.
--
-- A bucket is the string "<tokens_u>:<stamp_us>:<burst_u>:<limit_u>:<period_us>":
-- micro-tokens (1 u = 1e-6 token, negative = debt) as of a Redis time in µs, and
-- the rate that stands; where replicas disagree on it, ":<hold_us>:<span_us>"
-- besides (see prelude_change). An absent bucket is full. Without a rate, as
-- earlier versions wrote it, it is of the asker's.

-- bucket_parse returns stored tokens, their stamp, the level now under a rate, and
-- held: nil, or what stands in place of that rate. If held.say, that must be
-- written even if nothing is taken. A stamp ahead of now means that the clock
-- went back: no refill until it has caught up, which takes one period at most.
local function bucket_parse(packed, now, rate)
  if not packed then
    return rate.burst, now, rate.burst
  end
  local tokens, stamp, text = string.match(packed, '^(-?%d+):(%d+)(.*)$')
  tokens, stamp = tonumber(tokens), tonumber(stamp)
  if stamp - now > rate.period then
    stamp = now
  end
  local r, held = rate, nil
  if text ~= rate.text and text ~= '' and rate.limit > 0 then
    local burst, limit, period, hold, span = string.match(text, '^:(%d+):(%d+):(%d+):?(%d*):?(%d*)$')
    local stands = { burst = tonumber(burst), limit = tonumber(limit), period = tonumber(period) }
    tokens, stamp, held = change_agree(now, tokens, stamp, stands, tonumber(hold) or 0, tonumber(span) or 0, rate)
    r = held
  end
  tokens = math.min(tokens, r.burst)
  local level = math.min(r.burst, tokens + flow(math.max(0, now - stamp), r.limit, r.period))
  if held and held.say then
    return level, math.max(now, stamp), level, held
  end
  return tokens, stamp, level, held
end

-- bucket_until tells how long until the level is need_u, in µs. It is tight: a µs
-- less would not do.
local function bucket_until(now, tokens, stamp, need_u, rate, held)
  if held and held.hold > 0 then
    local at = need_u <= held.burst and stamp + fill(need_u - tokens, held.limit, held.period) or EXACT
    if at <= held.hold then
      return at - now
    end -- it is not enough until more begins
    tokens = math.min(held.burst, tokens + flow(math.max(0, held.hold - stamp), held.limit, held.period))
    stamp = math.max(stamp, held.hold)
    if tokens >= need_u then
      return stamp - now
    end
  end
  return stamp + fill(need_u - tokens, rate.limit, rate.period) - now
end

-- bucket_wait tells how long until cost_u is covered, in µs: 0 now, -1 never. A
-- cost above the burst passes only when max_debt_u allows the difference, and
-- then from a full bucket.
local function bucket_wait(now, tokens, stamp, level, rate, cost_u, max_debt_u, held)
  if rate.limit == 0 or cost_u - rate.burst > math.max(0, max_debt_u) then
    return -1
  end
  local need = math.min(cost_u, rate.burst)
  if level >= need then
    return 0
  end
  return bucket_until(now, tokens, stamp, need, rate, held)
end

-- bucket_pack is the text of a level as of stamp under a rate, or under what
-- stands in its place.
local function bucket_pack(stamp, level, rate)
  return string.format('%d:%d%s', level, stamp, rate.text)
end
