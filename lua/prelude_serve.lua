-- prelude_serve: whose turn it is among the bids of a pool call. Joined in front of
-- pool (see prelude_pool).
--
-- ARGV[3]     ttl
-- ARGV[8]     most
-- ARGV[b.at] ARGV[best.at] ARGV[best.at+2]      tenants of bids, weight of the best

-- Grants go in the order of S, the earlier bid among equal ones, until the pool
-- does not cover the next one. That is the head; need is what must be there for it:
-- its own cost and ahead, what claims before (s, inc) wait for. s never falls, so
-- each of those is counted once, and left out from then on.
local granted, most, ahead, opened, head, need = 0, ARGV[8] + 0, 0, level, false, 0
while true do
  local best, state = false, granted < most and 1 or 0
  for i = 1, n do
    local b = bids[i]
    best = b.state == 0 and (not best or b.s < best.s) and b or best
  end
  if not best then
    break
  end
  if best.s >= least then
    local left = 0
    least = EXACT
    for i = 1, live do
      local s, cost, name = start[i], price[i], claims[2 * i - 1]
      if s < best.s or (s == best.s and name < inc) then
        ahead = ahead + cost
      else
        left, least = left + 1, s < least and s or least
        start[left], price[left], claims[2 * left - 1] = s, cost, name
      end
    end
    live = left
  end
  need = best.cost + ahead
  if state == 1 and best.nb then
    rest = rest or others()
    state = rest.bid_check(best, now, inc)
  end
  if state == 0 or (state == 1 and level < min(need, full)) then
    head, best.list = best, nil
    break
  end
  best.state = state
  local f = best.f
  if state == 1 then
    if best.nb then
      rest.bid_take(best, now, inc, ARGV[3] + 0)
    end
    local s = max(f, best.since)
    level, granted, v = level - best.cost, granted + 1, max(v, min(s, hold))
    f = s + best.cost / 1000000 / ARGV[best.at + 2]
  end
  -- All bids of a tenant move on together. One that its own limits block is not
  -- waiting for the pool: it starts anew at v, and saves up no turns.
  for i = 1, state < 3 and n or 0 do
    local b = bids[i]
    if ARGV[b.at] == ARGV[best.at] then
      b.f, b.f_text = f, f == b.f and b.f_text or nil
      if state == 2 then
        b.since, b.since_text = v, nil
      end
      b.s = max(f, b.since) + (b.behind or 0)
    end
  end
end
