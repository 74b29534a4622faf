-- job_check: what was found out about the lines of a batch that is being checked.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     batch       id
-- ARGV[2]     first       number of the first job that costs are told of
-- ARGV[3]     costs       10 digits each
-- ARGV[4]     verdict     empty: there is more to check; start; fail
-- ARGV[5]     errors      of fail: what is wrong, as JSON
-- ARGV[6]     lease       ms until somebody else checks it from the beginning
--
-- Reply: 1, or 0 if it is not being checked any more. Running twice is running once.

local b = job_key('b', ARGV[1])
local f = redis.call('HMGET', b, 'status', 'tenant', 'total', 'life', 'expires')
if f[1] ~= 'validating' then
  return { 0 }
end
local life = tonumber(f[4])
if ARGV[3] ~= '' then
  redis.call('SETRANGE', job_key('c', ARGV[1]), job_text(10 * tonumber(ARGV[2])), ARGV[3])
  job_keep(job_key('c', ARGV[1]), life)
end
if ARGV[4] == 'fail' then
  redis.call('HSET', b, 'errors', ARGV[5])
  job_owe(f[2], -tonumber(f[3]))
  job_end(ARGV[1], 'failed')
elseif ARGV[4] == 'start' then
  redis.call('HSET', b, 'status', 'in_progress', 'in_progress_at', job_text(math.floor(job_now / 1000)))
  redis.call('ZADD', job_key('q', f[2]), job_text(job_count('n')), ARGV[1])
  job_keep(job_key('q', f[2]), LIFE)
  redis.call('ZADD', ROOT .. 'work', f[5], ARGV[1])
  turn_place(f[2])
else
  redis.call('ZADD', ROOT .. 'work', job_text(job_now + tonumber(ARGV[6])), ARGV[1])
end
return { 1 }
