-- prelude_lease: in-flight counters, joined in front of every script.
--
-- A counter is a hash. Per replica incarnation: "count:expiry_ms:seq", the
-- absolute count that it holds. _t caches the total of all, _x an instant (ms)
-- before which nobody's entry expires, so that most calls are O(1) and only
-- after _x is the hash scanned, O(replicas).

-- lease_scan recounts, leaving out what has expired of other incarnations. The
-- caller's own entry counts: its owner is obviously alive.
local function lease_scan(l, key, inc, now_ms)
  l.total, l.first = l.own, EXACT
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local name = all[i]
    if name ~= inc and string.sub(name, 1, 1) ~= '_' then
      local count, expiry = string.match(all[i + 1], '^(%d+):(%d+):')
      expiry = tonumber(expiry)
      if expiry <= now_ms then
        l.dead[#l.dead + 1] = name
      else
        l.total, l.first = l.total + tonumber(count), math.min(l.first, expiry)
      end
    end
  end
end

-- lease_read returns the counter as inc finds it: own count, own sequence (-1:
-- no entry), total of all, first expiry, names of dead entries. Reads only.
local function lease_read(key, inc, now_ms)
  local v = redis.call('HMGET', key, inc, '_t', '_x')
  local l = { own = 0, seq = -1, total = tonumber(v[2] or 0), first = tonumber(v[3] or EXACT), dead = {} }
  if v[1] then
    local count, seq = string.match(v[1], '^(%d+):%d+:(%d+)$')
    l.own, l.seq = tonumber(count), tonumber(seq)
  end
  if now_ms >= l.first then
    lease_scan(l, key, inc, now_ms)
  end
  return l
end

-- lease_decide tells whether want fits under cap: 0 yes, 1 no, 2 unknown: a
-- later call of this incarnation ran first and does not cover it, send again.
-- A later call that does cover it counted this one among its pending.
local function lease_decide(l, cap, want, seq)
  if l.seq < seq then
    return l.total - l.own + want > cap and 1 or 0
  end
  return want > l.own and 2 or (l.total > cap and 1 or 0)
end

-- lease_write states count for inc and forgets the dead. The key outlives every
-- entry by a second; a shorter ttl of one replica never cuts another's.
local function lease_write(key, inc, l, count, seq, now_ms, ttl_ms)
  local total = l.total - l.own + count
  if total == 0 then
    redis.call('DEL', key)
    return
  end
  if count == 0 then
    l.dead[#l.dead + 1] = inc
  end
  if #l.dead > 0 then
    redis.call('HDEL', key, unpack(l.dead))
  end
  local cache = { '_t', string.format('%d', total), '_x', string.format('%d', l.first) }
  if count > 0 then
    cache[4] = string.format('%d', math.min(l.first, now_ms + ttl_ms))
    cache[5], cache[6] = inc, string.format('%d:%d:%d', count, now_ms + ttl_ms, seq)
  end
  redis.call('HSET', key, unpack(cache))
  if redis.call('PTTL', key) < ttl_ms + 1000 then
    redis.call('PEXPIRE', key, string.format('%d', ttl_ms + 1000))
  end
end

-- lease_sync restates a counter without acquiring: the count stays what it was
-- as far as it is wanted, and is at least what is held, even above the cap.
-- Returns own count before, own count now, total now.
local function lease_sync(l, key, inc, held, want, seq, now_ms, ttl_ms)
  local count = l.own
  if l.seq < seq then
    count = math.max(held, math.min(l.own, want))
    if count > 0 or l.own > 0 then
      lease_write(key, inc, l, count, seq, now_ms, ttl_ms)
    end
  end
  return l.own, count, l.total - l.own + count
end
