-- job_read: a file or batch, or lines of a file, or which jobs of a batch have ended.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     kind        f file, b batch, l lines, d ended jobs
-- ARGV[2]     id          of the file or batch
-- ARGV[3]     first       of l and d: the first number, a multiple of 8 for d
-- ARGV[4]     most        of l: bytes after which no further line is sent; of d:
--             how many jobs
--
-- Reply: of f and b, field and value in turn, nothing if it is not there; of l, the
-- lines, none behind the last; of d, a text of bits, first job first, which ends
-- where nothing but zeros would follow.

local kind, id = ARGV[1], ARGV[2]
if kind == 'f' or kind == 'b' then
  return redis.call('HGETALL', job_key(kind, id))
end
local first, most = tonumber(ARGV[3]), tonumber(ARGV[4])
if kind == 'd' then
  return { redis.call('GETRANGE', job_key('d', id), math.floor(first / 8), math.floor((first + most - 1) / 8)) }
end
local lines, size = {}, 0
while size < most and #lines < 1000 do
  local line = redis.call('HGET', job_key('l', id), job_text(first + #lines))
  if not line then
    break
  end
  lines[#lines + 1], size = line, size + #line
end
return lines
