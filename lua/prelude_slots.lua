-- prelude_slots: counters of a plain admit (see prelude_plain), and whether it meets any
-- claim. Plain is one none of whose counters has an entry that can have expired.
--
-- KEYS[k]          counters, j of decision d at k = n*nb+(d-1)*nl+j
--
-- ARGV[1]          inc
-- ARGV[2]          ttl

local lapse = floor(now / 1000) + ARGV[2] -- ms; when this replica's entries expire
for k = n * nb + 1, plain and n * (nb + nl) or 0 do
  local key = KEYS[k]
  if not (met and met[key]) then
    local v = call('HMGET', key, ARGV[1], '_t', '_x')
    -- own count and total of all, first expiry, own sequence, in text where they are
    -- seldom reckoned with
    v[1], v[4] = string.match(v[1] or '0:0:-1', '^(%d+):%d+:(-?%d+)$')
    v[2], v[3] = (v[2] or 0) + 0, v[3] or '9007199254740992'
    plain, level[k] = plain and v[3] + 0 > lapse - ARGV[2], v
    if met then
      met[key] = k
    end
  end
end
local claimed = nc > 0 and plain and call('EXISTS', unpack(KEYS, n * (nb + nl) + 1)) > 0
