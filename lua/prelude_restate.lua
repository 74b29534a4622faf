-- prelude_restate: most statements of counters, at half the price. Joined in front of
-- all else of lease, it defines no function, for the reason that prelude_plain gives.
-- It answers calls about counters none of which has an entry that can have expired,
-- and leaves the others as they are to the preludes behind, which do the same.
--
-- KEYS[i]     counters
--
-- ARGV[1]     inc
-- ARGV[2]     seq
-- ARGV[3]     ttl
-- per counter, c = 2*i+2:
-- ARGV[c]     held
-- ARGV[c+1]   want

local call, format, match, time = redis.call, string.format, string.match, redis.call('TIME')
local now, plain, read = time[1] * 1000000 + time[2], true, {}
local now_ms = math.floor(now / 1000)
for i = 1, #KEYS do
  local v = call('HMGET', KEYS[i], ARGV[1], '_t', '_x')
  read[i] = v
  if v[3] and v[3] + 0 <= now_ms then
    plain = false
    break
  end
end
if plain then
  local reply, lapse, seq = { 1, now }, now_ms + ARGV[3], ARGV[2] + 0
  local expiry, ttl = format('%d', lapse), format('%d', ARGV[3] + 1000)
  for i = 1, #KEYS do
    local v, c, own, last = read[i], 2 * i + 2, 0, -1
    if v[1] then
      own, last = match(v[1], '^(%d+):%d+:(%d+)$')
      own = own + 0
    end
    local count, total = own, (v[2] or 0) - own
    if last + 0 < seq then
      count = math.max(ARGV[c] + 0, math.min(own, ARGV[c + 1] + 0))
      if total + count == 0 and own > 0 then
        call('DEL', KEYS[i])
      elseif count > 0 then
        local first = v[3] and v[3] + 0 < lapse and v[3] or expiry
        local entry = format('%d:%s:%s', count, expiry, ARGV[2])
        call('HSET', KEYS[i], '_t', format('%d', total + count), '_x', first, ARGV[1], entry)
      elseif own > 0 then
        call('HDEL', KEYS[i], ARGV[1])
        call('HSET', KEYS[i], '_t', format('%d', total), '_x', v[3])
      end
      if total + count > 0 and (count > 0 or own > 0) then
        call('PEXPIRE', KEYS[i], ttl, v[2] and 'GT' or 'NX')
      end
    end
    reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = own, count, total + count
  end
  return reply
end
