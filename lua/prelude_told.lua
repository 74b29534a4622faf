-- prelude_told: what a pool call stores of its grants. Joined in front of pool (see
-- prelude_pool).
--
-- KEYS[1]     bucket or counter
-- KEYS[2]     tags
--
-- ARGV[3]     ttl
-- ARGV[b.at]  tenant of a bid

local TAG_STEP = 64 -- V is this much further between two purges of old tags

if granted > 0 and seq ~= 0 then
  held = held + (opened - level) / 1000000
  rest.lease_write(KEYS[1], inc, lease, held, seq, math.floor(now / 1000), ARGV[3] + 0)
elseif granted > 0 then
  tokens, stamp = level, max(now, stamp)
  if stands then
    rest.bucket_write(KEYS[1], now, stamp, level, stands)
  else -- as bucket_write would
    local ms = math.floor((max(HOLD, stamp - now + fill(burst - level, limit, period)) + 999) / 1000) + 1
    local text = string.format('%d:%d%s', level, stamp, named)
    redis.call('SET', KEYS[1], text, 'PX', string.format('%d', min(MAX_TTL_MS, ms)))
  end
end

-- Virtual time and the tags of those granted. An idle pool forgets them 10 minutes
-- after its bucket could be full.
local after, texts = v_text, granted > 0 and {} -- texts of new tags, by tenant
if granted > 0 then
  after = v == v_text + 0 and v_text or tag_text(v)
  local pairs, m = { after, TAG_TIME }, 2
  for i = 1, n do
    local b = bids[i]
    local tenant = ARGV[b.at]
    if b.state == 1 and not texts[tenant] then
      texts[tenant] = tag_text(b.f)
      pairs[m + 1], pairs[m + 2], m = texts[tenant], tenant, m + 2
    end
  end
  redis.call('ZADD', KEYS[2], unpack(pairs))
  local ms = 600000 + math.floor(fill(burst, limit, period) / 1000)
  redis.call('PEXPIRE', KEYS[2], string.format('%d', min(MAX_TTL_MS, ms)))
  if math.floor(v / TAG_STEP) > math.floor(v_text / TAG_STEP) then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. tag_text(tag_floor(v, burst)))
  end
end
