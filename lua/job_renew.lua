-- job_renew: the jobs of a replica are still its own.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     lease       ms from now
-- ARGV[2*i]   job         i = 1..: <batch>/<number>
-- ARGV[2*i+1] claim       its number
--
-- Reply: per job 1, or 0 if that claim is over: the job ended, or is another's.

local reply = {}
for i = 1, (#ARGV - 1) / 2 do
  local claim = job_run(ARGV[2 * i])
  reply[i] = claim == ARGV[2 * i + 1] and 1 or 0
  if reply[i] == 1 then
    redis.call('ZADD', ROOT .. 'run', job_text(job_now + tonumber(ARGV[1])), ARGV[2 * i])
  end
end
return reply
