-- prelude_turn: whose turn it is among the bids of one pool call. Joined in front
-- of pool. p is the call: now, inc, ttl, level and burst of the pool, claims of
-- others, tags (the key); bids_read adds virtual time v and its texts.

-- bids_read parses the bids and their tags: start s, finish tag f; s is later by
-- one turn for each of its tenant's claims elsewhere that came before. Texts are
-- kept where the reply repeats them: printing a number costs more than all else.
local function bids_read(p, n)
  local bids, names, a, k = {}, { TAG_TIME }, 14, 4
  local peers, own = p.claims.peers, p.claims.own
  for i = 1, n do
    local b = bid_read(a, k)
    local before = peers[b.tenant] or 0
    if b.tenant == own then -- the claim is that of the first bid
      own, before = nil, p.claims.before
    end
    b.behind = before * b.cost / 1000000 / b.weight
    bids[i], names[i + 1] = b, b.tenant
    a, k = a + 7 + 5 * b.nb + 2 * b.nl, k + b.nb + b.nl
  end
  local tags = redis.call('ZMSCORE', p.tags, unpack(names))
  p.before = tags[1] or '0'
  p.v, p.text = tonumber(p.before), {}
  local v, floor = p.v, tag_floor(p.v, p.burst)
  for i = 1, n do
    local b, f_text = bids[i], tags[i + 1]
    local since = tonumber(b.since_text)
    if since < 0 or since > v then -- unknown, or the store lost its state
      since, b.since_text = v, p.before
    end
    local f = f_text and tonumber(f_text) or math.max(since, floor)
    b.f_text, b.since, b.f, b.s = f_text, since, f, math.max(f, since) + b.behind
  end
  return bids
end

-- bids_move gives every bid of a tenant new tags. One that its own limits block
-- is not waiting for the pool: it starts anew at v, and saves up no turns.
local function bids_move(p, bids, tenant, f, blocked)
  for i = 1, #bids do
    local b = bids[i]
    if b.tenant == tenant then
      b.f, b.f_text = f, f == b.f and b.f_text or nil
      if blocked then
        b.since, b.since_text = p.v, nil
      end
      b.s = math.max(f, b.since) + b.behind
    end
  end
end

-- bids_serve grants in the order of S, the earlier bid among equal ones, until
-- the pool does not cover the next. Returns grants, the bid left at the head,
-- and the micro-tokens that must be there for it: those before it and its own.
local function bids_serve(p, bids, most)
  local granted = 0
  while true do
    local best
    for i = 1, #bids do
      local b = bids[i]
      best = b.state == 0 and (not best or b.s < best.s) and b or best
    end
    if not best then
      return granted
    end
    local need = best.cost + claims_ahead(p.claims, best.s, p.inc)
    best.state = granted < most and bid_check(p, best) or 0
    if best.state <= 1 and (best.state == 0 or p.level < math.min(need, p.full)) then
      best.state, best.list = 0, nil
      return granted, best, need
    elseif best.state == 1 then
      bid_take(p, best)
      p.level, granted = p.level - best.cost, granted + 1
      local s = math.max(best.f, best.since)
      p.v = math.max(p.v, math.min(s, p.claims.hold))
      bids_move(p, bids, best.tenant, s + best.cost / 1000000 / best.weight)
    elseif best.state == 2 then
      bids_move(p, bids, best.tenant, best.f, true)
    end
  end
end
