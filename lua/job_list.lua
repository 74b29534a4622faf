-- job_list: a page of a tenant's files or batches.
--
-- Its one key is the root (see prelude_job).
--
-- ARGV[1]     tenant      who asks
-- ARGV[2]     kind        f files, b batches
-- ARGV[3]     after       id that the page follows; empty: from the beginning
-- ARGV[4]     limit       longest page, > 0
-- ARGV[5]     order       desc: newest first; asc
-- ARGV[6]     purpose     files of that purpose alone; empty: of any
--
-- Reply: whether there is more (0, 1), then per entry a list of its id and, in turn,
-- its fields and their values; nothing but -1 if there is no such after.

local kind, limit, desc = ARGV[2], tonumber(ARGV[4]), ARGV[5] == 'desc'
local all, from = job_key('t' .. kind, ARGV[1]), 0
if ARGV[3] ~= '' then
  local rank = redis.call(desc and 'ZREVRANK' or 'ZRANK', all, ARGV[3])
  if not rank then
    return { -1 }
  end
  from = rank + 1
end
local reply, gone = { 0 }, {}
while reply[1] == 0 do
  local ids = redis.call(desc and 'ZREVRANGE' or 'ZRANGE', all, from, from + limit)
  for _, id in ipairs(ids) do
    local fields = redis.call('HGETALL', job_key(kind, id))
    local purpose = ''
    for i = 1, #fields, 2 do
      purpose = fields[i] == 'purpose' and fields[i + 1] or purpose
    end
    if #fields == 0 then
      gone[#gone + 1] = id
    elseif ARGV[6] == '' or purpose == ARGV[6] then
      if #reply > limit then
        reply[1] = 1
        break
      end
      table.insert(fields, 1, id)
      reply[#reply + 1] = fields
    end
  end
  from = from + limit + 1
  if #ids <= limit then
    break
  end
end
for _, id in ipairs(gone) do
  redis.call('ZREM', all, id)
end
return reply
