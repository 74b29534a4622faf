-- prelude_jobend: results, joined in front of job_done and job_void.

-- job_result records the one result of a job: a line of the results (o) or errors
-- (e) of its batch. False: there is one already. The last one ends the batch, in
-- the way that was decided before.
local function job_result(batch, i, kind, line)
  local b, d = job_key('b', batch), job_key('d', batch)
  if redis.call('SETBIT', d, i, 1) == 1 then
    return false
  end
  local f = redis.call('HMGET', b, 'tenant', kind == 'o' and 'out' or 'err', 'life', 'total', 'ending')
  local n = redis.call('HINCRBY', b, kind .. 'n', '1') - 1
  redis.call('HSET', job_key('l', f[2]), job_text(n), line)
  redis.call('HINCRBY', b, kind .. 'bytes', job_text(#line + 1))
  redis.call('HINCRBY', b, kind == 'o' and 'completed' or 'failed', '1')
  job_keep(d, tonumber(f[3]))
  job_keep(job_key('l', f[2]), tonumber(f[3]))
  job_owe(f[1], -1)
  local ended = redis.call('HMGET', b, 'completed', 'failed')
  if tonumber(ended[1]) + tonumber(ended[2]) == tonumber(f[4]) then
    if not redis.call('HGET', b, 'finalizing_at') then
      redis.call('HSET', b, 'finalizing_at', job_text(math.floor(job_now / 1000)))
    end
    job_end(batch, f[5] or 'completed')
  end
  return true
end
