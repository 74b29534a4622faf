-- prelude_once: buckets and counters as the decisions of one admit call leave
-- them, joined in front of it. Each is read once and written once, however many
-- decisions name it; yet they do what calls of one decision each would have
-- done, one after the other at the same instant.
--
-- t is the call: now, now_ms, inc, ttl; buckets and leases by key; and of those
-- the ones that are to be written, changed_b and changed_l.

-- once_take charges a bucket that covers cost, and returns what is left.
local function once_take(t, b, cost)
  local left, stamp = b.level - cost, b.stamp
  if stamp < t.now then
    stamp = t.now
  end
  if not b.last then
    t.changed_b[#t.changed_b + 1] = b
  end
  b.tokens, b.level, b.stamp = left, left, stamp
  b.left, b.at, b.last = left, stamp, b.held or b.rate
  return left
end

-- once_bucket returns the bucket of key under a rate; packed is its stored text.
-- Two decisions may know different rates, while limits change: each then reads
-- what the last grant before it has left, not what a refusal thought of it.
local function once_bucket(t, key, packed, rate)
  local b = t.buckets[key]
  if not b then -- every field at once: a table that grows later costs more
    b = {
      key = key, rate = rate, packed = packed, tokens = 0, stamp = 0, level = 0, held = false,
      last = false, left = 0, at = 0,
    }
    t.buckets[key] = b
  elseif b.rate == rate then
    return b
  elseif b.last then
    b.packed = bucket_pack(b.at, b.left, b.last)
  end
  b.rate = rate
  b.tokens, b.stamp, b.level, b.held = bucket_parse(b.packed, t.now, rate)
  if b.held and b.held.say then -- written even if nothing is taken
    once_take(t, b, 0)
  end
  return b
end

-- once_lease returns the counter of key.
local function once_lease(t, key)
  local l = t.leases[key]
  if not l then
    l = lease_read(key, t.inc, t.now_ms)
    l.key, t.leases[key] = key, l
  end
  return l
end

-- once_state states want for this incarnation, unless a later call already has.
local function once_state(t, l, want, seq)
  if l.seq >= seq then
    return
  end
  l.total, l.own, l.seq = l.total - l.own + want, want, seq
  l.first = math.min(l.first, t.now_ms + t.ttl)
  if not l.changed then
    l.changed, t.changed_l[#t.changed_l + 1] = true, l
  end
end

-- once_write stores all that has changed. Nothing is read after it.
local function once_write(t)
  for _, b in ipairs(t.changed_b) do
    bucket_write(b.key, t.now, b.at, b.left, b.last)
  end
  for _, l in ipairs(t.changed_l) do
    lease_write(l.key, t.inc, l, l.own, l.seq, t.now_ms, t.ttl)
  end
end
