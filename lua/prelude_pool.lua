-- prelude_pool: the instant of a pool call, and the claims on turns. Joined in
-- front of pool with five preludes more. Together they run straight through, as
-- prelude_plain does, for functions made anew in every call cost a lot; what few
-- calls need is made by others(), and then alone.
--
-- Start-time fair queueing over the fleet. A tenant's finish tag F grows by
-- cost/weight with every grant, its next start is S = max(F, since), and the
-- least S is served. Per incarnation one claim "S:cost_u:expiry_us:tenant" says
-- whose head it could not serve yet, so that nobody with a later S takes those
-- tokens, nor those that come while the replica rests although its turn has come.
-- Of one tenant's claims only the oldest can be next: the k-th behind it counts
-- as starting k turns later, or it would hold back others and ask in vain.
--
-- KEYS[3]     claims
--
-- ARGV[1]     not_after
-- ARGV[2]     inc

local CLAIM_ECHO = 1000000 -- µs for which an expired claim still holds V back

local match, max, min = string.match, math.max, math.min
local time, inc = redis.call('TIME'), ARGV[2]
local now, rest = time[1] * 1000000 + time[2], false -- rest: what others() has made
if now > ARGV[1] + 0 then
  return { 3, now }
end

-- Of live claims of others: how many, with start and cost, and in place of what
-- was read incarnation and tenant; least is their least start, peers counts them
-- by tenant. hold is the least S that holds V back, latest the last expiry of
-- others, own the tenant of inc's claim and mine its S, old names what is of long ago.
local claims, start, price, live = redis.call('HGETALL', KEYS[3]), {}, {}, 0
local hold, least, latest, own, mine, peers, old = EXACT, EXACT, 0, false, EXACT, false, false
for i = 1, #claims, 2 do
  local name, s, cost, expiry, tenant = claims[i], match(claims[i + 1], '^([^:]+):(%d+):(%d+):(.*)$')
  s, expiry = s + 0, expiry + 0
  if name == inc then
    own, mine = tenant, s
  elseif expiry + CLAIM_ECHO < now then
    old = old or {}
    old[#old + 1] = name
  else
    hold = s < hold and s or hold
    latest = expiry > latest and expiry or latest
    if expiry >= now then
      live, peers = live + 1, peers or {}
      least = s < least and s or least
      start[live], price[live], claims[2 * live - 1], claims[2 * live] = s, cost + 0, name, tenant
      peers[tenant] = (peers[tenant] or 0) + 1
    end
  end
end

local before = 0 -- peers of inc's claim that came earlier
for i = 1, peers and peers[own] and live or 0 do
  if claims[2 * i] == own and (start[i] < mine or (start[i] == mine and claims[2 * i - 1] < inc)) then
    before = before + 1
  end
end
