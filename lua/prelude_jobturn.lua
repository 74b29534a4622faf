-- prelude_jobturn: whose job is next. Joined in front of the scripts that claim jobs
-- or change what there is to claim.
--
-- Tenants with something to claim stand in the round, a sorted set by start tag:
-- '<12 digits>:<tenant>', where the digits rise from turn to turn, so that of equal
-- tags the one goes first that joined or was served longest ago. v is the start tag
-- of the latest turn. tags keeps the finish tags of tenants that left and are still
-- ahead of v; wait holds, by when, those whose next job may not run yet.

-- turn_tag prints a tag so that reading it back gives the same number.
local function turn_tag(x)
  return string.format('%.17g', x)
end

local function turn_v()
  return tonumber(redis.call('GET', ROOT .. 'v') or '0')
end

-- turn_enter puts a tenant into the round at a tag, behind its equals.
local function turn_enter(tenant, tag)
  local member = string.format('%012d:', job_count('n')) .. tenant
  redis.call('HSET', job_key('t', tenant), 'place', member)
  redis.call('ZADD', ROOT .. 'round', turn_tag(tag), member)
  job_keep(ROOT .. 'round', LIFE)
end

-- turn_leave takes it out. What it owes is remembered until v has passed it.
local function turn_leave(tenant, member, tag)
  redis.call('ZREM', ROOT .. 'round', member)
  redis.call('HDEL', job_key('t', tenant), 'place')
  if tag > turn_v() then
    redis.call('ZADD', ROOT .. 'tags', turn_tag(tag), tenant)
    job_keep(ROOT .. 'tags', LIFE)
  end
end

-- turn_place puts a tenant that is not in the round where it belongs: into it, or
-- aside until its next job may run or its pause is over, or nowhere.
local function turn_place(tenant)
  local f = redis.call('HMGET', job_key('t', tenant), 'place', 'pause')
  if f[1] then
    return
  end
  redis.call('ZREM', ROOT .. 'wait', tenant)
  local due
  if redis.call('EXISTS', job_key('q', tenant)) == 1 then
    due = job_now
  else
    due = tonumber(redis.call('ZRANGE', job_key('r', tenant), 0, 0, 'WITHSCORES')[2] or '-1')
    if due < 0 then
      return
    end
  end
  due = math.max(due, tonumber(f[2] or '0'))
  if due > job_now then
    redis.call('ZADD', ROOT .. 'wait', job_text(due), tenant)
    job_keep(ROOT .. 'wait', LIFE)
    return
  end
  local tag = tonumber(redis.call('ZSCORE', ROOT .. 'tags', tenant) or '0')
  redis.call('ZREM', ROOT .. 'tags', tenant)
  turn_enter(tenant, math.max(tag, turn_v()))
end

-- turn_correct moves a tenant's tag by cost that was charged too little (> 0) or
-- too much. Of one that is not ahead of v nothing is known: it may be charged, but
-- has nothing to be given back.
local function turn_correct(tenant, delta)
  local f = redis.call('HMGET', job_key('t', tenant), 'place', 'weight')
  local by = delta / tonumber(f[2] or '1')
  if f[1] then
    redis.call('ZINCRBY', ROOT .. 'round', turn_tag(by), f[1])
    return
  end
  local v, tag = turn_v(), redis.call('ZSCORE', ROOT .. 'tags', tenant)
  tag = (tag and tonumber(tag) or v) + by
  if tag > v then
    redis.call('ZADD', ROOT .. 'tags', turn_tag(tag), tenant)
    job_keep(ROOT .. 'tags', LIFE)
  else
    redis.call('ZREM', ROOT .. 'tags', tenant)
  end
end
