-- job_void: jobs that will not run any more get an error in place of a result.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     batch       its batch
-- ARGV[2]     ending      expired or cancelled: what the batch becomes at last
-- ARGV[3]     rest        ms until somebody has to look at the batch again
-- ARGV[2*j+2] number      j = 1..: of a job
-- ARGV[2*j+3] line        of the file of errors
--
-- Reply: how many jobs have no result yet; -1 if the batch has ended, or must not. A job that
-- runs is left to its claim. Running twice is running once.

local batch = ARGV[1]
local b = job_key('b', batch)
local f = redis.call('HMGET', b, 'status', 'tenant', 'total', 'expires', 'ending')
if f[1] ~= 'in_progress' and f[1] ~= 'finalizing' and f[1] ~= 'cancelling' then
  return { -1 }
end
if not f[5] then
  if ARGV[2] ~= 'expired' or tonumber(f[4]) > job_now then
    return { -1 }
  end
  redis.call('HSET', b, 'ending', ARGV[2])
end
if f[1] == 'in_progress' then
  redis.call('HSET', b, 'status', 'finalizing', 'finalizing_at', job_text(math.floor(job_now / 1000)))
end
redis.call('ZREM', job_key('q', f[2]), batch)
redis.call('ZADD', ROOT .. 'work', job_text(job_now + tonumber(ARGV[3])), batch)
for j = 1, (#ARGV - 3) / 2 do
  local i = ARGV[2 * j + 2]
  if not redis.call('ZSCORE', ROOT .. 'run', batch .. '/' .. i) and job_result(batch, i, 'e', ARGV[2 * j + 3]) then
    redis.call('ZREM', job_key('r', f[2]), batch .. '/' .. i)
  end
end
local ended = redis.call('HMGET', b, 'completed', 'failed')
return { tonumber(f[3]) - tonumber(ended[1]) - tonumber(ended[2]) }
