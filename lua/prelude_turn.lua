-- prelude_turn: whose turn it is among the bids of one pool call. Joined in front
-- of pool. p is the call: now, inc, ttl, level and burst of the pool, claims of
-- others, tags (the key); bids_read adds virtual time v and its texts. The bids
-- stand in ARGV one after the other:
--
-- ARGV[a]     tenant      id
-- ARGV[a+1]   cost        micro-tokens of the pool, 1..burst
-- ARGV[a+2]   weight      > 0
-- ARGV[a+3]   since       V when it began to wait, as told before; -1 unknown
-- ARGV[a+4]   seq         sequence for its counters, > 0, rising from bid to bid
-- ARGV[a+5]   nb          buckets besides the pool's
-- ARGV[a+6]   nl          counters
-- then per bucket and counter what prelude_bid names

-- bids_read parses the bids and their tags: start s, finish tag f. Texts are
-- kept where the reply repeats them: printing a number costs more than all else.
local function bids_read(p, n)
  local bids, names, a, k, number = {}, { TAG_TIME }, 12, 4, tonumber
  for i = 1, n do
    local nb, nl = number(ARGV[a + 5]), number(ARGV[a + 6])
    local b = { -- every field at once: a table that grows later costs more than the rest
      tenant = ARGV[a], cost = number(ARGV[a + 1]), weight = number(ARGV[a + 2]), since_text = ARGV[a + 3],
      seq = nl > 0 and number(ARGV[a + 4]) or 0, nb = nb, nl = nl, at = a, key = k,
      state = 0, since = 0, f = 0, s = 0, f_text = false, list = false, leases = false,
    }
    bids[i], names[i + 1] = b, b.tenant
    a, k = a + 7 + 5 * nb + 2 * nl, k + nb + nl
  end
  local tags = redis.call('ZMSCORE', p.tags, unpack(names))
  p.before = tags[1] or '0'
  p.v, p.text = number(p.before), {}
  local v, floor = p.v, tag_floor(p.v, p.burst)
  for i = 1, n do
    local b, f_text = bids[i], tags[i + 1]
    local since = number(b.since_text)
    if since < 0 or since > v then -- unknown, or the store lost its state
      since, b.since_text = v, p.before
    end
    local f = f_text and number(f_text) or math.max(since, floor)
    b.f_text, b.since, b.f, b.s = f_text, since, f, math.max(f, since)
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
      b.s = math.max(f, b.since)
    end
  end
end

-- bids_serve grants in the order of S, the earlier bid among equal ones, until
-- the pool does not cover the next. Returns grants, the bid left at the head,
-- and the micro-tokens that must be there for it.
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
    local need = math.min(best.cost + claims_ahead(p.claims, best.s, p.inc), p.full)
    best.state = granted < most and bid_check(p, best) or 0
    if best.state <= 1 and (best.state == 0 or p.level < need) then
      best.state, best.list = 0, nil
      return granted, best, need
    elseif best.state == 1 then
      bid_take(p, best)
      p.level, granted = p.level - best.cost, granted + 1
      p.v = math.max(p.v, math.min(best.s, p.claims.hold))
      bids_move(p, bids, best.tenant, best.s + best.cost / 1000000 / best.weight)
    elseif best.state == 2 then
      bids_move(p, bids, best.tenant, best.f, true)
    end
  end
end
