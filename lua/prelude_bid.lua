-- prelude_bid: one bid of a pool call, and what it needs besides the pool's own.
-- Joined in front of pool. p is the call (see prelude_turn), b the bid. Bids
-- stand in ARGV one after the other:
--
-- ARGV[a]     tenant      id
-- ARGV[a+1]   cost        micro-tokens of the pool, 1..burst
-- ARGV[a+2]   weight      > 0
-- ARGV[a+3]   since       V when it began to wait, as told before; -1 unknown
-- ARGV[a+4]   seq         sequence for its counters, > 0, rising from bid to bid
-- ARGV[a+5]   nb          buckets besides the pool's
-- ARGV[a+6]   nl          counters
-- KEYS[b.key+i-1]       its buckets, i = 1..b.nb
-- KEYS[b.key+b.nb+j-1]  its counters, j = 1..b.nl
--
-- per bucket, a = b.at+2+5*i:
-- ARGV[a]     limit       micro-tokens per period; 0 blocks
-- ARGV[a+1]   period      µs, > 0
-- ARGV[a+2]   burst       micro-tokens
-- ARGV[a+3]   cost        micro-tokens, >= 0
-- ARGV[a+4]   max_debt    micro-tokens; how far a cost above the burst may overdraw
-- per counter, c = b.at+5+5*b.nb+2*j:
-- ARGV[c]     cap         slots of the whole fleet
-- ARGV[c+1]   want        slots of this replica with this one: held + pending

local FREE = {} -- what a bid without limits of its own is told of them

-- bid_read parses the bid at ARGV[a], whose keys begin at the k-th.
local function bid_read(a, k)
  local number = tonumber
  local nb, nl = number(ARGV[a + 5]), number(ARGV[a + 6])
  return { -- every field at once: a table that grows later costs more than the rest
    tenant = ARGV[a], cost = number(ARGV[a + 1]), weight = number(ARGV[a + 2]), since_text = ARGV[a + 3],
    seq = nl > 0 and number(ARGV[a + 4]) or 0, nb = nb, nl = nl, at = a, key = k,
    state = 0, since = 0, f = 0, s = 0, behind = 0, f_text = false, list = false, leases = false,
  }
end

-- bid_check looks at a bid's own limits: state 1 all covered, 2 or 3 not.
local function bid_check(p, b)
  if b.nb + b.nl == 0 then
    b.list, b.leases = FREE, FREE
    return 1
  end
  local state, list = 1, {}
  for i = 1, b.nb do
    local a = b.at + 2 + 5 * i
    local rate = rate_of(ARGV[a], ARGV[a + 1], ARGV[a + 2])
    local tokens, stamp, level, held = bucket_read(KEYS[b.key + i - 1], p.now, rate)
    local cost, max_debt = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
    local wait = bucket_wait(p.now, tokens, stamp, level, rate, cost, max_debt, held)
    list[2 * i - 1], list[2 * i] = rate.limit == 0 and 0 or level, wait
    state = wait ~= 0 and 2 or state
  end
  b.leases = {}
  for j = 1, b.nl do
    local c = b.at + 5 + 5 * b.nb + 2 * j
    b.leases[j] = lease_read(KEYS[b.key + b.nb + j - 1], p.inc, math.floor(p.now / 1000))
    local full = lease_decide(b.leases[j], tonumber(ARGV[c]), tonumber(ARGV[c + 1]), b.seq)
    list[2 * b.nb + j] = full
    state = full == 1 and 2 or (full == 2 and state == 1 and 3 or state)
  end
  b.list = list
  return state
end

-- bid_take takes what bid_check found covered.
local function bid_take(p, b)
  for i = 1, b.nb do
    local a, key = b.at + 2 + 5 * i, KEYS[b.key + i - 1]
    local cost = tonumber(ARGV[a + 3])
    if cost > 0 then
      local rate = rate_of(ARGV[a], ARGV[a + 1], ARGV[a + 2])
      local _, stamp, level, held = bucket_read(key, p.now, rate)
      b.list[2 * i - 1] = level - cost
      bucket_write(key, p.now, stamp, level - cost, held or rate)
    end
  end
  for j, l in ipairs(b.leases) do
    if l.seq < b.seq then
      local c = b.at + 5 + 5 * b.nb + 2 * j
      lease_write(KEYS[b.key + b.nb + j - 1], p.inc, l, tonumber(ARGV[c + 1]), b.seq, math.floor(p.now / 1000), p.ttl)
    end
  end
end
