-- prelude_job: names, times and the end of jobs, joined in front of every job script.
--
-- KEYS[1]     root        hw:{hw-jobs}: in front of every other key, whose names
--                         scripts only find as they go; the tag makes all of one slot
--
-- Times are ms of Redis' clock. Under the root stand, of a file f, batch b, tenant t:
--   f:<f>  hash, what is told of it     l:<f>  hash, its lines by number from 0
--   b:<b>  hash, what is told of it     c:<b>  costs of its jobs, 10 digits each
--   d:<b>  bits, jobs with a result     e:<b>  hash, how often a job went back
--   t:<t>  hash, weight and place       tf:<t>, tb:<t>  its files and batches by age
--   q:<t>  batches with jobs that nobody claimed yet   r:<t>  jobs to be run again, by when
--   run    job <b>/<number> by end of its lease        runs   its claim, cost and tenant
--   work   batches by when somebody has to look at them
--   round, tags, wait, v   see prelude_jobturn         n, claims   counters

local ROOT = KEYS[1]
local LIFE = 34560000000 -- 400 days: of counters and tenants, from their last use
local job_now = math.floor(redis_now() / 1000)

local function job_key(kind, id)
  return ROOT .. kind .. ':' .. id
end

local function job_text(n)
  return string.format('%d', n)
end

-- job_keep lets a key live so many ms from now.
local function job_keep(key, ms)
  redis.call('PEXPIRE', key, job_text(ms))
end

-- job_count moves a counter that never falls back.
local function job_count(name)
  local n = redis.call('INCR', ROOT .. name)
  job_keep(ROOT .. name, LIFE)
  return n
end

-- job_owe changes how many jobs of a tenant have no result yet.
local function job_owe(tenant, by)
  redis.call('HINCRBY', job_key('t', tenant), 'jobs', job_text(by))
  job_keep(job_key('t', tenant), LIFE)
end

-- job_room counts what a tenant keeps of one kind, f or b. At the bound it looks
-- whether all of that is still there.
local function job_room(kind, tenant, most)
  local all = job_key('t' .. kind, tenant)
  if redis.call('ZCARD', all) >= most then
    for _, id in ipairs(redis.call('ZRANGE', all, 0, -1)) do
      if redis.call('EXISTS', job_key(kind, id)) == 0 then
        redis.call('ZREM', all, id)
      end
    end
  end
  return redis.call('ZCARD', all) < most
end

-- job_publish makes lines that were collected a file of the tenant.
local function job_publish(tenant, file, name, lines, bytes, keep)
  redis.call('HSET', job_key('f', file), 'tenant', tenant, 'purpose', 'batch_output', 'name', name,
    'lines', lines, 'bytes', bytes, 'created', job_text(math.floor(job_now / 1000)), 'state', 'processed', 'uses', '0')
  redis.call('ZADD', job_key('tf', tenant), job_text(job_count('n')), file)
  job_keep(job_key('tf', tenant), LIFE)
  job_keep(job_key('f', file), keep)
  job_keep(job_key('l', file), keep)
end

-- job_end closes a batch: nothing of it will run or be looked at any more.
local function job_end(batch, status)
  local b = job_key('b', batch)
  local f = redis.call('HMGET', b, 'tenant', 'file', 'out', 'on', 'obytes', 'err', 'en', 'ebytes', 'keep')
  local tenant, keep, at = f[1], tonumber(f[9]), job_text(math.floor(job_now / 1000))
  redis.call('HSET', b, 'status', status, status .. '_at', at)
  redis.call('ZREM', ROOT .. 'work', batch)
  redis.call('ZREM', job_key('q', tenant), batch)
  if redis.call('EXISTS', job_key('f', f[2])) == 1 then
    redis.call('HINCRBY', job_key('f', f[2]), 'uses', '-1')
  end
  if f[4] ~= '0' then
    job_publish(tenant, f[3], batch .. '_output.jsonl', f[4], f[5], keep)
  end
  if f[7] ~= '0' then
    job_publish(tenant, f[6], batch .. '_error.jsonl', f[7], f[8], keep)
  end
  redis.call('DEL', job_key('c', batch), job_key('e', batch))
  job_keep(b, keep)
  job_keep(job_key('d', batch), keep)
end
