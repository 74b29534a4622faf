-- prelude_once: buckets and counters as the decisions of one admit call leave
-- them, joined in front of it. Each is read once and written once, however many
-- decisions name it; yet they do what calls of one decision each would have
-- done, one after the other at the same instant.

-- Of the call. admit sets the first four.
local now, now_ms, inc, ttl
local seen = {} -- buckets and counters by key
local changed, restated = {}, {} -- those of them that are to be written

-- once_take charges a bucket that covers cost, and returns what is left.
local function once_take(b, cost)
  local left = b.level - cost
  if not b.last then
    changed[#changed + 1] = b
  end
  if b.stamp < now then
    b.stamp = now
  end
  b.tokens, b.level, b.last = left, left, b.held or b.rate
  if b.at then
    b.at = nil
  end
  return left
end

-- once_bucket returns the bucket of key under a rate; packed is its stored text.
-- Two decisions may know different rates, while limits change: each then reads
-- what the last grant before it has left, not what a refusal thought of it.
local function once_bucket(key, packed, rate)
  local b = seen[key]
  if not b then -- every field at once: a table that grows later costs more
    b = { key = key, rate = rate, packed = packed, tokens = 0, stamp = 0, level = 0, held = false, last = false }
    seen[key] = b
  elseif b.rate == rate then
    return b
  elseif b.last then
    if not b.at then
      b.at, b.left = b.stamp, b.level
    end
    b.packed = bucket_pack(b.at, b.left, b.last)
  end
  b.rate = rate
  b.tokens, b.stamp, b.level, b.held = bucket_parse(b.packed, now, rate)
  if b.held and b.held.say then -- written even if nothing is taken
    once_take(b, 0)
  end
  return b
end

-- once_lease returns the counter of key.
local function once_lease(key)
  local l = seen[key]
  if not l then
    l = lease_read(key, inc, now_ms)
    l.key, seen[key] = key, l
  end
  return l
end

-- once_state states want for this incarnation, unless a later call already has.
local function once_state(l, want, seq)
  if l.seq >= seq then
    return
  end
  l.total, l.own, l.seq = l.total - l.own + want, want, seq
  l.first = math.min(l.first, now_ms + ttl)
  if not l.changed then
    l.changed, restated[#restated + 1] = true, l
  end
end

-- once_write stores all that has changed. Nothing is read after it.
local function once_write()
  for i = 1, #changed do
    local b = changed[i]
    bucket_write(b.key, now, b.at or b.stamp, b.at and b.left or b.level, b.last)
  end
  for i = 1, #restated do
    local l = restated[i]
    lease_write(l.key, inc, l, l.own, l.seq, now_ms, ttl)
  end
end
