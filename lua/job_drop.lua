-- job_drop: delete a file of a tenant.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     tenant      who asks
-- ARGV[2]     file        id
--
-- Reply: 'ok', 'none' (it has no such file), or 'used' (by a batch that has not ended).

local f = job_key('f', ARGV[2])
local is = redis.call('HMGET', f, 'tenant', 'uses')
if is[1] ~= ARGV[1] then
  return { 'none' }
end
if tonumber(is[2]) > 0 then
  return { 'used' }
end
redis.call('DEL', f, job_key('l', ARGV[2]))
redis.call('ZREM', job_key('tf', ARGV[1]), ARGV[2])
return { 'ok' }
