-- prelude_told: what a pool call stores of its bids, and what it tells of them.
-- Joined in front of pool.

local TAG_STEP = 64 -- V is this much further between two purges of old tags

-- bids_behind sums the micro-tokens of bids that wait behind the head.
local function bids_behind(bids, head)
  local sum = 0
  for i = 1, #bids do
    sum = bids[i].state == 0 and bids[i] ~= head and sum + bids[i].cost or sum
  end
  return sum
end

-- bids_store writes virtual time and the tags of those granted. An idle pool
-- forgets them 10 minutes after its bucket could be full.
local function bids_store(p, bids)
  p.after = p.v == tonumber(p.before) and p.before or tag_text(p.v)
  local pairs, n = { p.after, TAG_TIME }, 2
  for i = 1, #bids do
    local b = bids[i]
    if b.state == 1 and not p.text[b.tenant] then
      p.text[b.tenant] = tag_text(b.f)
      pairs[n + 1], pairs[n + 2], n = p.text[b.tenant], b.tenant, n + 2
    end
  end
  redis.call('ZADD', p.tags, unpack(pairs))
  local ttl = 600000 + math.floor(fill(p.burst, p.limit, p.period) / 1000)
  redis.call('PEXPIRE', p.tags, string.format('%d', math.min(MAX_TTL_MS, ttl)))
  if math.floor(p.v / TAG_STEP) > math.floor(tonumber(p.before) / TAG_STEP) then
    redis.call('ZREMRANGEBYSCORE', p.tags, '-inf', '(' .. tag_text(tag_floor(p.v, p.burst)))
  end
end

-- bids_reply appends what each bid became.
local function bids_reply(p, bids, reply)
  local n = #reply
  for i = 1, #bids do
    local b = bids[i]
    reply[n + 1], reply[n + 2] = b.state, p.text[b.tenant] or b.f_text or tag_text(b.f)
    reply[n + 3] = b.since_text or tag_text(b.since)
    n = n + 3
    for j = 1, 2 * b.nb + b.nl do
      n = n + 1
      reply[n] = b.list and b.list[j] or 0 -- 0: nobody looked
    end
  end
  return reply
end
