-- ws_read: read documents of workspaces, unless none has changed.
--
-- KEYS[1]     head        hw:{hw-ws}:head
-- KEYS[i]     documents, i = 2..#KEYS, none or some   hw:{hw-ws}:d:<id>
--
-- ARGV[1]     known       head of an earlier reply; - to read in any case
--
-- Reply, text:
--   head      changes with every change of any document; empty: never written
--   then, unless it is the one known, per document its text, or nil for none
--
-- O(documents). Changes nothing.

local head = redis.call('GET', KEYS[1]) or ''
local reply = { head }
if head ~= ARGV[1] then
  for i = 2, #KEYS do
    reply[i] = redis.call('GET', KEYS[i])
  end
end
return reply
