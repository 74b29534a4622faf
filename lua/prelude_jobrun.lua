-- prelude_jobrun: claims of jobs, joined in front of job_claim, job_done and job_back.
-- A claim stands in run by the end of its lease, and in runs as
-- '<claim>:<cost>:<tenant>'.

-- job_run returns the claim, cost and tenant of a job that runs; nil if none does.
local function job_run(job)
  local run = redis.call('HGET', ROOT .. 'runs', job)
  if run then
    return string.match(run, '^(%d+):(%d+):(.*)$')
  end
end

-- job_free ends a claim.
local function job_free(job)
  redis.call('ZREM', ROOT .. 'run', job)
  redis.call('HDEL', ROOT .. 'runs', job)
end

-- job_again lets a job wait for another claim, not before a time.
local function job_again(tenant, batch, i, at)
  redis.call('ZADD', job_key('r', tenant), job_text(at), batch .. '/' .. i)
  job_keep(job_key('r', tenant), LIFE)
  redis.call('HINCRBY', job_key('e', batch), i, '1')
  job_keep(job_key('e', batch), tonumber(redis.call('HGET', job_key('b', batch), 'life') or '0'))
end

-- job_reap gives back the jobs whose lease is over, 32 at a time. What they were
-- charged stays: they may have cost it.
local function job_reap(now)
  local lost = redis.call('ZRANGEBYSCORE', ROOT .. 'run', '-inf', job_text(now), 'LIMIT', 0, 32)
  for _, job in ipairs(lost) do
    local _, _, tenant = job_run(job)
    job_free(job)
    local batch, i = string.match(job, '^(.*)/(%d+)$')
    if tenant and redis.call('HGET', job_key('b', batch), 'status') == 'in_progress' then
      job_again(tenant, batch, i, now)
      turn_place(tenant)
    end
  end
  return #lost
end

-- job_claimed writes a claim down, and tells of its job.
local function job_claimed(tenant, batch, i, lease)
  local job, b = batch .. '/' .. i, job_key('b', batch)
  local f = redis.call('HMGET', b, 'file', 'endpoint', 'key', 'user', 'place', 'expires')
  local at = 10 * tonumber(i)
  local cost = tonumber(redis.call('GETRANGE', job_key('c', batch), job_text(at), job_text(at + 9))) or 1
  local claim = job_count('claims')
  redis.call('ZADD', ROOT .. 'run', job_text(job_now + lease), job)
  redis.call('HSET', ROOT .. 'runs', job, string.format('%d:%d:', claim, cost) .. tenant)
  job_keep(ROOT .. 'run', LIFE)
  job_keep(ROOT .. 'runs', LIFE)
  return {
    batch, tonumber(i), claim, tonumber(redis.call('HGET', job_key('e', batch), i) or '0'), cost,
    redis.call('HGET', job_key('l', f[1]), i) or '', f[2], f[3], f[4], f[5],
    tonumber(f[6]) - job_now,
  }
end

-- job_rest returns ms until the next job may be claimed; -1: none is known of.
local function job_rest()
  if redis.call('ZCARD', ROOT .. 'round') > 0 then
    return 0
  end
  local rest = -1
  for _, name in ipairs({ 'wait', 'run' }) do
    local first = redis.call('ZRANGE', ROOT .. name, 0, 0, 'WITHSCORES')[2]
    if first then
      local ms = math.max(1, tonumber(first) - job_now)
      rest = rest < 0 and ms or math.min(rest, ms)
    end
  end
  return rest
end
