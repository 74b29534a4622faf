-- job_back: a job that could not run now is for somebody to claim again.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     batch       its batch
-- ARGV[2]     number      its number there
-- ARGV[3]     claim       under which it was to run
-- ARGV[4]     rest        ms from now before which nobody claims it
-- ARGV[5]     pause       ms from now in which no other job of its tenant is claimed
--
-- Reply: 1, or 0 if that claim is over. Its turn is given back: it is charged again.

local batch, i = ARGV[1], ARGV[2]
local job = batch .. '/' .. i
local claim, cost, tenant = job_run(job)
if claim ~= ARGV[3] then
  return { 0 }
end
job_free(job)
turn_correct(tenant, -tonumber(cost))
if redis.call('HGET', job_key('b', batch), 'status') == 'in_progress' then
  job_again(tenant, batch, i, job_now + tonumber(ARGV[4]))
end
local t, pause = job_key('t', tenant), tonumber(ARGV[5])
if pause > 0 then
  local f = redis.call('HMGET', t, 'place', 'pause')
  redis.call('HSET', t, 'pause', job_text(math.max(tonumber(f[2] or '0'), job_now + pause)))
  if f[1] then
    turn_leave(tenant, f[1], tonumber(redis.call('ZSCORE', ROOT .. 'round', f[1])))
  end
end
turn_place(tenant)
return { 1 }
