-- ws_write: replace the document of a workspace, if it is the one that was read.
--
-- KEYS[1]     head        hw:{hw-ws}:head
-- KEYS[2]     document    hw:{hw-ws}:d:<id>
-- KEYS[3]     changes     hw:{hw-ws}:c:<id>
--
-- ARGV[1]     before      text of the document as it was read; empty: there was none
-- ARGV[2]     after       its new text, without the time
-- ARGV[3]     change      what has changed, for whoever asks; without the time
-- ARGV[4]     keep        how many changes are kept, > 0
-- ARGV[5]     head        the new head, which never was one before
--
-- Reply:
--   status    1 replaced; 0 the document is another by now, nothing changed
--   text      the document as it is stored now: Redis time in ms, a space, its
--             text; empty: there is none
--
-- O(1). Run twice, the second call finds another document.

local stored = redis.call('GET', KEYS[2]) or ''
if stored ~= ARGV[1] then
  return { 0, stored }
end
local now = string.format('%d ', math.floor(redis_now() / 1000))
redis.call('SET', KEYS[2], now .. ARGV[2])
redis.call('SET', KEYS[1], ARGV[5])
redis.call('LPUSH', KEYS[3], now .. ARGV[3])
redis.call('LTRIM', KEYS[3], 0, tonumber(ARGV[4]) - 1)
return { 1, now .. ARGV[2] }
