-- prelude_bid: what one bid of a pool call needs besides the pool's own. Joined in
-- front of pool, where others() makes it (see prelude_pool). b is the bid, a table
-- of prelude_turn, which says where it stands:
--
-- ARGV[b.at+4]  seq       sequence for its counters, > 0, rising from bid to bid
-- KEYS[b.key+i-1]       its buckets, i = 1..b.nb
-- KEYS[b.key+b.nb+j-1]  its counters, j = 1..b.nl
-- per bucket, a = b.at+2+5*i:
-- ARGV[a]     limit       micro-tokens per period; 0 blocks
-- ARGV[a+1]   period      µs, > 0
-- ARGV[a+2]   burst       micro-tokens
-- ARGV[a+3]   cost        micro-tokens, >= 0
-- ARGV[a+4]   max_debt    micro-tokens; how far a cost above the burst may overdraw
-- per counter, c = b.at+5+5*b.nb+2*j:
-- ARGV[c]     cap         slots of the whole fleet
-- ARGV[c+1]   want        slots of this replica with this one: held + pending

-- bid_check looks at a bid's own limits: state 1 all covered, 2 or 3 not.
local function bid_check(b, now, inc)
  local state, list = 1, {}
  for i = 1, b.nb do
    local a = b.at + 2 + 5 * i
    local rate = rate_of(ARGV[a], ARGV[a + 1], ARGV[a + 2])
    local tokens, stamp, level, held = bucket_read(KEYS[b.key + i - 1], now, rate)
    local cost, max_debt = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
    local wait = bucket_wait(now, tokens, stamp, level, rate, cost, max_debt, held)
    list[2 * i - 1], list[2 * i] = rate.limit == 0 and 0 or level, wait
    state = wait ~= 0 and 2 or state
  end
  b.leases = {}
  for j = 1, b.nl do
    local c = b.at + 5 + 5 * b.nb + 2 * j
    b.leases[j] = lease_read(KEYS[b.key + b.nb + j - 1], inc, math.floor(now / 1000))
    local full = lease_decide(b.leases[j], tonumber(ARGV[c]), tonumber(ARGV[c + 1]), tonumber(ARGV[b.at + 4]))
    list[2 * b.nb + j] = full
    state = full == 1 and 2 or (full == 2 and state == 1 and 3 or state)
  end
  b.list = list
  return state
end

-- bid_take takes what bid_check found covered.
local function bid_take(b, now, inc, ttl)
  for i = 1, b.nb do
    local a, key = b.at + 2 + 5 * i, KEYS[b.key + i - 1]
    local cost = tonumber(ARGV[a + 3])
    if cost > 0 then
      local rate = rate_of(ARGV[a], ARGV[a + 1], ARGV[a + 2])
      local _, stamp, level, held = bucket_read(key, now, rate)
      b.list[2 * i - 1] = level - cost
      bucket_write(key, now, stamp, level - cost, held or rate)
    end
  end
  for j, l in ipairs(b.leases) do
    local seq = tonumber(ARGV[b.at + 4])
    if l.seq < seq then
      local c = b.at + 5 + 5 * b.nb + 2 * j
      lease_write(KEYS[b.key + b.nb + j - 1], inc, l, tonumber(ARGV[c + 1]), seq, math.floor(now / 1000), ttl)
    end
  end
end
