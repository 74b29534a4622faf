-- prelude_turn: whose turn it is among the bids of one pool call. Joined in front
-- of pool. p is the call: now, inc, ttl, level and burst of the pool, virtual
-- time v, hold (the least S of others, which holds v back), claims of others,
-- tags (the key). The bids stand in ARGV one after the other:
--
-- ARGV[a]     tenant      id
-- ARGV[a+1]   cost        micro-tokens of the pool, 1..burst
-- ARGV[a+2]   weight      > 0
-- ARGV[a+3]   since       V when it began to wait, as told before; -1 unknown
-- ARGV[a+4]   seq         sequence for its counters, > 0, rising from bid to bid
-- ARGV[a+5]   nb          buckets besides the pool's
-- ARGV[a+6]   nl          counters
-- then per bucket and counter what prelude_bid names

-- bids_read parses the bids and their tags: start s, finish tag f.
local function bids_read(p, n)
  local bids, a, k = {}, 10, 5
  for i = 1, n do
    local b = { tenant = ARGV[a], cost = tonumber(ARGV[a + 1]), weight = tonumber(ARGV[a + 2]) }
    b.state, b.at, b.key = 0, a, k
    b.seq, b.nb, b.nl = tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5]), tonumber(ARGV[a + 6])
    b.since = math.min(tonumber(ARGV[a + 3]), p.v) -- later than v: the store lost its state
    if b.since < 0 then
      b.since = p.v
    end
    b.f = tonumber(redis.call('ZSCORE', p.tags, b.tenant) or b.since)
    b.s = math.max(b.f, b.since)
    bids[i] = b
    a, k = a + 7 + 5 * b.nb + 2 * b.nl, k + b.nb + b.nl
  end
  return bids
end

-- bids_serve grants in the order of S, the earlier bid among equal ones, until
-- the pool does not cover the next. Returns grants and the bid left at the head.
local function bids_serve(p, bids, most)
  local granted = 0
  while true do
    local best
    for _, b in ipairs(bids) do
      if b.state == 0 and (not best or b.s < best.s) then
        best = b
      end
    end
    if not best or granted == most then
      return granted, best
    end
    best.state = bid_check(p, best)
    if best.state == 1 then
      local need = math.min(best.cost + claims_ahead(p.claims, best.s, p.inc), p.burst)
      if p.level < need then
        best.state, best.list = 0, nil
        return granted, best
      end
      bid_take(p, best)
      p.level, granted = p.level - best.cost, granted + 1
      p.v = math.max(p.v, math.min(best.s, p.hold))
      local f = best.s + best.cost / 1000000 / best.weight
      redis.call('ZADD', p.tags, tag_text(f), best.tenant)
      for _, b in ipairs(bids) do
        if b.tenant == best.tenant then
          b.f = f
          b.s = math.max(f, b.since)
        end
      end
    end
  end
end

-- bids_reply appends what each bid became.
local function bids_reply(bids, reply)
  for _, b in ipairs(bids) do
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = b.state, tag_text(b.f), tag_text(b.since)
    for i = 1, 2 * b.nb + b.nl do
      reply[n + 3 + i] = b.list and b.list[i] or 0 -- 0: nobody looked
    end
  end
  return reply
end
