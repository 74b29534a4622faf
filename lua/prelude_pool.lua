-- prelude_pool: turns of a contended bucket, joined in front of pool.
--
-- Start-time fair queueing over the fleet. Tags and virtual time are numbers in
-- units of cost / weight (whole tokens): a tenant's finish tag F grows by
-- cost/weight with every grant, its next start is S = max(F, since), and the
-- least S is served. Per incarnation one claim "S:cost_u:expiry_us" says whose
-- head it could not serve yet, so that nobody with a later S takes those tokens.

local CLAIM_ECHO = 1000000 -- µs for which an expired claim still holds V back
local TAG_STEP = 64 -- V is this much further between two purges of old tags

-- tag_text prints a tag so that reading it back gives the same number.
local function tag_text(x)
  return string.format('%.17g', x)
end

-- claims_read returns the live claims of others {S, cost_u, name}, the least S
-- that holds V back, and how many fields the hash has; it deletes old claims.
local function claims_read(key, inc, now)
  local all, live, hold, old = redis.call('HGETALL', key), {}, EXACT, {}
  for i = 1, #all, 2 do
    local name = all[i]
    local s, cost, expiry = string.match(all[i + 1], '^([^:]+):(%d+):(%d+)$')
    s, expiry = tonumber(s), tonumber(expiry)
    if expiry + CLAIM_ECHO < now then
      old[#old + 1] = name
    elseif name ~= inc then
      hold = math.min(hold, s)
      if expiry >= now then
        live[#live + 1] = { s, tonumber(cost), name }
      end
    end
  end
  if #old > 0 then
    redis.call('HDEL', key, unpack(old))
  end
  return live, hold, #all / 2 - #old
end

-- claims_ahead sums the micro-tokens that claims before (s, inc) wait for.
local function claims_ahead(claims, s, inc)
  local ahead = 0
  for _, c in ipairs(claims) do
    if c[1] < s or (c[1] == s and c[3] < inc) then
      ahead = ahead + c[2]
    end
  end
  return ahead
end
