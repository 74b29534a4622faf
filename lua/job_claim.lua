-- job_claim: the next jobs of the whole fleet, for a replica that can start them now.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     not_after   Redis time, µs; later than this nothing is claimed
-- ARGV[2]     most        jobs wanted, > 0
-- ARGV[3]     lease       ms for which a job is nobody else's
-- ARGV[4]     bytes       after so many of lines no further job is claimed
--
-- Reply: ms until there may be more (-1: nothing is known of; 0: now); how many jobs
-- lost their replica since the last call; then of each job a list: batch, number,
-- claim, how often it went back, estimated cost, line, endpoint, key, user, place, ms
-- left until its deadline. A claim's number is larger than all before it.
--
-- Each turn is the tenant's with the least start tag (see prelude_jobturn), and moves
-- it on by cost / weight. Inside a tenant, jobs that went back come first, then those
-- of the oldest batch, in the order of the file.

-- next_of takes the next job of a tenant; nil: there is none for now.
local function next_of(tenant)
  local r, q = job_key('r', tenant), job_key('q', tenant)
  for _ = 1, 64 do -- but those of batches that have ended are left out
    local job = redis.call('ZRANGEBYSCORE', r, '-inf', job_text(job_now), 'LIMIT', 0, 1)[1]
    if not job then
      break
    end
    redis.call('ZREM', r, job)
    local batch, i = string.match(job, '^(.*)/(%d+)$')
    local f = redis.call('HMGET', job_key('b', batch), 'status', 'expires')
    if f[1] == 'in_progress' and tonumber(f[2]) > job_now and redis.call('GETBIT', job_key('d', batch), i) == 0 then
      return batch, i
    end
  end
  for _ = 1, 64 do
    local batch = redis.call('ZRANGE', q, 0, 0)[1]
    if not batch then
      return
    end
    local f = redis.call('HMGET', job_key('b', batch), 'status', 'expires', 'next', 'total')
    local runs = f[1] == 'in_progress' and tonumber(f[2]) > job_now
    if not runs or tonumber(f[3]) + 1 >= tonumber(f[4]) then
      redis.call('ZREM', q, batch)
    end
    if runs and tonumber(f[3]) < tonumber(f[4]) then
      redis.call('HINCRBY', job_key('b', batch), 'next', '1')
      return batch, f[3]
    end
  end
end

if redis_now() > tonumber(ARGV[1]) then
  return { 0, 0 }
end
local lost = job_reap(job_now)
for _, tenant in ipairs(redis.call('ZRANGEBYSCORE', ROOT .. 'wait', '-inf', job_text(job_now), 'LIMIT', 0, 32)) do
  turn_place(tenant)
end
local most, size, v, jobs = tonumber(ARGV[2]), 0, turn_v(), {}
for _ = 1, 2 * most + 16 do
  local head = redis.call('ZRANGE', ROOT .. 'round', 0, 0, 'WITHSCORES')
  if #jobs >= most or size >= tonumber(ARGV[4]) or not head[1] then
    break
  end
  local tenant, tag = string.sub(head[1], 14), tonumber(head[2])
  local batch, i = next_of(tenant)
  if batch then
    redis.call('ZREM', ROOT .. 'round', head[1])
    v = math.max(v, tag)
    redis.call('SET', ROOT .. 'v', turn_tag(v), 'PX', job_text(LIFE))
    jobs[#jobs + 1] = job_claimed(tenant, batch, i, tonumber(ARGV[3]))
    size = size + #jobs[#jobs][6]
    turn_enter(tenant, tag + jobs[#jobs][5] / tonumber(redis.call('HGET', job_key('t', tenant), 'weight') or '1'))
  else
    turn_leave(tenant, head[1], tag)
    turn_place(tenant)
  end
end
if v > 0 then
  redis.call('ZREMRANGEBYSCORE', ROOT .. 'tags', '-inf', turn_tag(v))
end
return { job_rest(), lost, unpack(jobs) }
