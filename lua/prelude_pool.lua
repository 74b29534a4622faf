-- prelude_pool: claims on turns of a contended bucket, joined in front of pool.
--
-- Start-time fair queueing over the fleet. A tenant's finish tag F grows by
-- cost/weight with every grant, its next start is S = max(F, since), and the
-- least S is served. Per incarnation one claim "S:cost_u:expiry_us:tenant" says
-- whose head it could not serve yet, so that nobody with a later S takes those
-- tokens, nor those that come while the replica rests although its turn has come.
-- Of one tenant's claims only the oldest can be next: the k-th behind it counts
-- as starting k turns later, or it would hold back others and ask in vain.

local CLAIM_ECHO = 1000000 -- µs for which an expired claim still holds V back

-- claims_read reads the hash. Of live claims of others: n of them, with start,
-- cost and name; least is their least start; peers counts them by tenant. hold
-- is the least S that holds V back, latest the last expiry of others, own the
-- tenant of inc's, before how many of its peers came earlier, old names what is
-- of long ago.
local function claims_read(key, inc, now)
  local all = redis.call('HGETALL', key)
  local c = { start = {}, cost = {}, name = {}, old = {}, peers = {}, own = false, before = 0, ahead = 0, latest = 0 }
  local hold, least, n, match, number, peers = EXACT, EXACT, 0, string.match, tonumber, c.peers
  local tenants, mine = {}, EXACT
  for i = 1, #all, 2 do
    local name = all[i]
    local s, cost, expiry, tenant = match(all[i + 1], '^([^:]+):(%d+):(%d+):(.*)$')
    s, expiry = number(s), number(expiry)
    if name == inc then
      c.own, mine = tenant, s
    elseif expiry + CLAIM_ECHO < now then
      c.old[#c.old + 1] = name
    else
      hold = s < hold and s or hold
      c.latest = expiry > c.latest and expiry or c.latest
      if expiry >= now then
        n = n + 1
        least = s < least and s or least
        c.start[n], c.cost[n], c.name[n], tenants[n] = s, number(cost), name, tenant
        peers[tenant] = (peers[tenant] or 0) + 1
      end
    end
  end
  for i = 1, peers[c.own] and n or 0 do
    if tenants[i] == c.own and (c.start[i] < mine or (c.start[i] == mine and c.name[i] < inc)) then
      c.before = c.before + 1
    end
  end
  c.hold, c.least, c.n = hold, least, n
  return c
end

-- claims_ahead sums the micro-tokens that claims before (s, inc) wait for. From
-- call to call s must not fall: those found before it are only counted once.
local function claims_ahead(c, s, inc)
  if s < c.least then
    return c.ahead
  end
  local n, least, ahead = 0, EXACT, c.ahead
  for i = 1, c.n do
    local start, cost, name = c.start[i], c.cost[i], c.name[i]
    if start < s or (start == s and name < inc) then
      ahead = ahead + cost
    else
      n = n + 1
      least = start < least and start or least
      c.start[n], c.cost[n], c.name[n] = start, cost, name
    end
  end
  c.n, c.least, c.ahead = n, least, ahead
  return ahead
end

-- claims_write forgets old claims and states the head that inc could not serve,
-- if any. The hash lives until its last claim is of long ago.
local function claims_write(key, c, now, inc, head, cost, expiry)
  if not head and c.own then
    c.old[#c.old + 1] = inc
  end
  if #c.old > 0 then
    redis.call('HDEL', key, unpack(c.old))
  end
  if head then
    redis.call('HSET', key, inc, tag_text(head.s) .. string.format(':%d:%d:', cost, expiry) .. head.tenant)
    local ttl = math.ceil((math.max(c.latest, expiry) + CLAIM_ECHO - now) / 1000)
    redis.call('PEXPIRE', key, string.format('%d', math.min(MAX_TTL_MS, ttl)))
  end
end
