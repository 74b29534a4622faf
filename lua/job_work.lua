-- job_work: the batch that somebody has to look at: to check its lines, or to end
-- what will not run any more.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     lease       ms for which nobody else is told of it
--
-- Reply: ms until there is one (-1: none is known of), or 0, its id, and what is
-- told of it, field and value in turn.

local first = redis.call('ZRANGE', ROOT .. 'work', 0, 0, 'WITHSCORES')
if not first[1] then
  return { -1 }
end
local due = tonumber(first[2])
if due > job_now then
  return { due - job_now }
end
local fields = redis.call('HGETALL', job_key('b', first[1]))
if #fields == 0 then
  redis.call('ZREM', ROOT .. 'work', first[1])
  return { 1 }
end
redis.call('ZADD', ROOT .. 'work', job_text(job_now + tonumber(ARGV[1])), first[1])
return { 0, first[1], unpack(fields) }
