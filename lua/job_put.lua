-- job_put: begin a file of a tenant, add lines to it, or end it.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     tenant      whose file it is
-- ARGV[2]     file        its id
-- ARGV[3]     first       number of the first line that follows; 0 begins the file
-- ARGV[4]     life        ms; how long it is kept from now on
-- ARGV[5]     most        files of one tenant at once
-- ARGV[6]     bytes       size of the whole file; empty: there is more to come
-- ARGV[7]     name        what its owner calls it
-- ARGV[i]     lines       i = 8.., without their ends
--
-- Reply: 'ok', 'full' (the tenant has as many files as it may), or 'gone' (it was
-- begun and is there no more). Running twice is running once: lines are kept by
-- their number.

local tenant, file, first = ARGV[1], ARGV[2], tonumber(ARGV[3])
local f, l, life = job_key('f', file), job_key('l', file), tonumber(ARGV[4])
if redis.call('EXISTS', f) == 0 then
  if first > 0 then
    return { 'gone' }
  end
  if not job_room('f', tenant, tonumber(ARGV[5])) then
    return { 'full' }
  end
  redis.call('HSET', f, 'tenant', tenant, 'purpose', 'batch', 'name', ARGV[7], 'lines', '0', 'bytes', '0',
    'created', job_text(math.floor(job_now / 1000)), 'state', 'uploaded', 'uses', '0')
  redis.call('ZADD', job_key('tf', tenant), job_text(job_count('n')), file)
  job_keep(job_key('tf', tenant), LIFE)
end
for i = 8, #ARGV do
  redis.call('HSET', l, job_text(first + i - 8), ARGV[i])
end
if ARGV[6] ~= '' then
  redis.call('HSET', f, 'state', 'processed', 'bytes', ARGV[6], 'lines', job_text(first + #ARGV - 7))
end
job_keep(f, life)
job_keep(l, life)
return { 'ok' }
