-- prelude_slots: the counters of a plain admit (see prelude_plain). Plain is one
-- none of whose entries can have expired, and that no later call has overtaken.
--
-- KEYS[nb+j]       counters
--
-- ARGV[1]          inc
-- ARGV[2]          ttl
-- ARGV[c+1]        seq
-- per counter, a = c+2*nb+2*j:
-- ARGV[a]          cap
-- ARGV[a+1]        want

local held, lapse = nl > 0 and {}, math.floor(now / 1000) + ARGV[2] -- ms; when this replica's entries expire
for j = 1, plain and nl or 0 do
  local a, own, last = c + 2 * nb + 2 * j, 0, -1
  local v = redis.call('HMGET', KEYS[nb + j], ARGV[1], '_t', '_x')
  if v[1] then
    own, last = string.match(v[1], '^(%d+):%d+:(%d+)$')
  end
  local first, total = (v[3] or TOP) + 0, (v[2] or 0) - own + ARGV[a + 1]
  plain = plain and first > lapse - ARGV[2] and last + 0 < ARGV[c + 1] + 0
  v[2], v[3] = string.format('%d', total), string.format('%d', math.min(first, lapse))
  held[j], reply[3 + 2 * nb + j] = v, total > ARGV[a] + 0 and 1 or 0
  granted = granted and total <= ARGV[a] + 0
end
