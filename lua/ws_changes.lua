-- ws_changes: read what was changed in a workspace lately.
--
-- KEYS[1]     changes     hw:{hw-ws}:c:<id>
--
-- ARGV[1]     most        how many at most, > 0
--
-- Reply, text: the changes, the latest first, each Redis time in ms, a space,
-- and what ws_write was told.
--
-- O(changes). Changes nothing.

return redis.call('LRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1)
