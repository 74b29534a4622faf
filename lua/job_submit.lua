-- job_submit: make a batch of a file. Its lines are checked before any of them runs.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     tenant      who asks
-- ARGV[2]     batch       id of the new batch
-- ARGV[3]     file        id of its input
-- ARGV[4]     deadline    ms from now after which no job of it runs
-- ARGV[5]     keep        ms; how long it is kept once it has ended
-- ARGV[6]     weight      of the tenant, > 0
-- ARGV[7]     jobs        most jobs of one tenant without a result
-- ARGV[8]     batches     most batches of one tenant that are kept
-- ARGV[9]     out         id of the file for results
-- ARGV[10]    err         id of the file for errors
-- From the 11th on: fields, name and value in turn, kept as they are.
--
-- Reply: 'ok'; 'none' (it has no such file); 'purpose' (results are no input);
-- 'open' (not all of it has arrived); 'empty'; 'batches' (it keeps as many batches
-- as it may); or 'jobs', then how many jobs it has and how many lines the file has.
-- A batch that is there already is answered 'ok', and nothing changes.

local tenant, batch, file = ARGV[1], ARGV[2], ARGV[3]
local b, f = job_key('b', batch), job_key('f', file)
if redis.call('EXISTS', b) == 1 then
  return { 'ok' }
end
local is = redis.call('HMGET', f, 'tenant', 'purpose', 'state', 'lines')
if is[1] ~= tenant then
  return { 'none' }
elseif is[2] ~= 'batch' then
  return { 'purpose' }
elseif is[3] ~= 'processed' then
  return { 'open' }
elseif is[4] == '0' then
  return { 'empty' }
end
local lines, owed = tonumber(is[4]), tonumber(redis.call('HGET', job_key('t', tenant), 'jobs') or '0')
if owed + lines > tonumber(ARGV[7]) then
  return { 'jobs', owed, lines }
end
if not job_room('b', tenant, tonumber(ARGV[8])) then
  return { 'batches' }
end
local life = tonumber(ARGV[4]) + tonumber(ARGV[5])
redis.call('HSET', b, 'tenant', tenant, 'file', file, 'out', ARGV[9], 'err', ARGV[10], 'keep', ARGV[5],
  'status', 'validating', 'created', job_text(math.floor(job_now / 1000)),
  'expires', job_text(job_now + tonumber(ARGV[4])),
  'life', job_text(life), 'total', is[4], 'next', '0', 'completed', '0', 'failed', '0',
  'on', '0', 'en', '0', 'obytes', '0', 'ebytes', '0')
redis.call('HSET', b, unpack(ARGV, 11))
job_keep(b, life)
redis.call('HINCRBY', f, 'uses', '1')
if redis.call('PTTL', f) < life then
  job_keep(f, life)
  job_keep(job_key('l', file), life)
end
redis.call('ZADD', job_key('tb', tenant), job_text(job_count('n')), batch)
job_keep(job_key('tb', tenant), LIFE)
redis.call('ZADD', ROOT .. 'work', job_text(job_now), batch)
job_keep(ROOT .. 'work', LIFE)
redis.call('HSET', job_key('t', tenant), 'weight', ARGV[6])
job_owe(tenant, lines)
return { 'ok' }
