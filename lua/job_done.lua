-- job_done: the result of a job.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     batch       its batch
-- ARGV[2]     number      its number there
-- ARGV[3]     claim       under which it ran
-- ARGV[4]     kind        o result, e error
-- ARGV[5]     line        of the file of that kind
-- ARGV[6]     cost        what it cost in the end; empty: not known
--
-- Reply: 1 recorded; 2 recorded already, by this claim or another; 0 the batch is
-- there no more. A claim that is over is still good for a result while there is no
-- other: the work is done. So running twice is running once.

local batch, i = ARGV[1], ARGV[2]
local job, status = batch .. '/' .. i, redis.call('HGET', job_key('b', batch), 'status')
local claim, cost, tenant = job_run(job)
if claim == ARGV[3] then
  job_free(job)
  if ARGV[6] ~= '' then
    turn_correct(tenant, tonumber(ARGV[6]) - tonumber(cost))
  end
end
if not status then
  return { 0 }
end
if not job_result(batch, i, ARGV[4], ARGV[5]) then
  return { 2 }
end
if claim ~= ARGV[3] then -- whoever runs it now, or would, need not
  job_free(job)
  redis.call('ZREM', job_key('r', redis.call('HGET', job_key('b', batch), 'tenant')), job)
end
return { 1 }
