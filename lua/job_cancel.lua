-- job_cancel: a tenant wants no more of a batch.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     tenant      who asks
-- ARGV[2]     batch       id
--
-- Reply: 'ok' (also if it was cancelled before), 'none' (it has no such batch), or
-- 'ended' and its status. Jobs that run are left to their claims; the others get an
-- error for a result soon after.

local b = job_key('b', ARGV[2])
local f = redis.call('HMGET', b, 'tenant', 'status', 'total', 'ending')
if f[1] ~= ARGV[1] then
  return { 'none' }
end
local at = job_text(math.floor(job_now / 1000))
if f[2] == 'validating' then
  redis.call('HSET', b, 'cancelling_at', at)
  job_owe(f[1], -tonumber(f[3]))
  job_end(ARGV[2], 'cancelled')
elseif f[2] == 'in_progress' then
  redis.call('HSET', b, 'status', 'cancelling', 'cancelling_at', at, 'ending', 'cancelled')
  redis.call('ZREM', job_key('q', f[1]), ARGV[2])
  redis.call('ZADD', ROOT .. 'work', job_text(job_now), ARGV[2])
elseif f[2] ~= 'cancelling' and f[2] ~= 'cancelled' then
  return { 'ended', f[2] }
end
return { 'ok' }
