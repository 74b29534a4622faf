-- prelude_bucket: token buckets, joined in front of every script.
--
-- A bucket is the string "<tokens_u>:<stamp_us>:<burst_u>:<speed>", and where
-- replicas disagree on its limit ":<hold_us>:<span_us>" besides: micro-tokens
-- (1 u = 1e-6 token, negative = debt) as of a Redis time in µs, and the limit
-- that stands (see prelude_change). An absent bucket is full; without a burst,
-- as earlier versions wrote it, it is of the asker's limit.
--
-- held is what bucket_parse finds besides a plain bucket of the asker's limit,
-- mostly nothing. If held.say, it must be written even if nothing is taken.

-- bucket_parse returns stored tokens, their stamp, the level now, and held. Tokens
-- above a lowered burst are cut. A stamp ahead of now means that the clock
-- went back: no refill until it has caught up, which takes one period at most.
local function bucket_parse(packed, now, limit_u, period_us, burst_u)
  if not packed then
    return burst_u, now, burst_u
  end
  local tokens, stamp, burst, speed, rest = string.match(packed, '^(-?%d+):(%d+):?(%d*):?(%d*)(.*)$')
  tokens, stamp = tonumber(tokens), tonumber(stamp)
  if stamp - now > period_us then
    stamp = now
  end
  local own, held = rate_speed(limit_u, period_us), nil
  if limit_u > 0 and burst ~= '' and (rest ~= '' or tonumber(speed) ~= own or tonumber(burst) ~= burst_u) then
    local hold, span = string.match(rest, '^:(%d+):(%d+)$')
    tokens, stamp, held = change_agree(now, tokens, stamp, tonumber(burst), tonumber(speed), tonumber(hold or 0),
      tonumber(span or 0), { limit = limit_u, period = period_us, burst = burst_u, speed = own })
    limit_u, period_us, burst_u = held.limit, held.period, held.burst
  end
  tokens = math.min(tokens, burst_u)
  local level = math.min(burst_u, tokens + flow(math.max(0, now - stamp), limit_u, period_us))
  if held and held.say then
    return level, math.max(now, stamp), level, held
  end
  return tokens, stamp, level, held
end

-- bucket_until tells how long until the level is need_u, in µs. It is tight: a µs
-- less would not do.
local function bucket_until(now, tokens, stamp, need_u, limit_u, period_us, held)
  if held and held.hold > 0 then
    local at = EXACT
    if need_u <= held.burst and held.limit > 0 then
      at = stamp + fill(need_u - tokens, held.limit, held.period)
    end
    if at > held.hold then -- it is not enough until more begins
      tokens = math.min(held.burst, tokens + flow(math.max(0, held.hold - stamp), held.limit, held.period))
      stamp = math.max(stamp, held.hold)
      at = tokens >= need_u and stamp or stamp + fill(need_u - tokens, limit_u, period_us)
    end
    return at - now
  end
  return stamp + fill(need_u - tokens, limit_u, period_us) - now
end

-- bucket_wait tells how long until cost_u is covered, in µs: 0 now, -1 never. A
-- cost above the burst passes only when max_debt_u allows the difference, and
-- then from a full bucket.
local function bucket_wait(now, tokens, stamp, level, limit_u, period_us, burst_u, cost_u, max_debt_u, held)
  if limit_u == 0 or cost_u - burst_u > math.max(0, max_debt_u) then
    return -1
  end
  local need = math.min(cost_u, burst_u)
  if level >= need then
    return 0
  end
  return bucket_until(now, tokens, stamp, need, limit_u, period_us, held)
end

-- bucket_pack is the text of a level as of stamp.
local function bucket_pack(stamp, level, limit_u, period_us, burst_u, held)
  if not held then
    return string.format('%d:%d:%d:%d', level, stamp, burst_u, rate_speed(limit_u, period_us))
  elseif held.hold == 0 and held.span == 0 then
    return string.format('%d:%d:%d:%d', level, stamp, held.burst, held.speed)
  end
  return string.format('%d:%d:%d:%d:%d:%d', level, stamp, held.burst, held.speed, held.hold, held.span)
end
