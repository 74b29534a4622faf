-- pool: give turns at one contended bucket or counter, in the order of the fleet.
--
-- KEYS[1]     bucket of the pool          hw:{hw}:b:<dimension>:<32 hex>
--             or its counter              hw:{hw}:l:<dimension>:<32 hex>
-- KEYS[2]     tags, virtual time          hw:{hw}:p:<dimension>:<32 hex>:t
-- KEYS[3]     claims by incarnation       hw:{hw}:p:<dimension>:<32 hex>:c
--             (of a counter s in place of p)
-- then what each bid needs besides, bids in order: its buckets, its counters
--
-- ARGV[1]     not_after   Redis time, µs; later than this nothing is taken
-- ARGV[2]     inc         incarnation of the replica; does not begin with _
-- ARGV[3]     ttl         ms; lifetime of the replica's counter entries
-- ARGV[4]     grace       µs; how long a claim outlives the wait it was told
-- ARGV[5]     limit       micro-tokens per period, > 0; of slots as many come free
-- ARGV[6]     period      µs, > 0
-- ARGV[7]     burst       micro-tokens; of slots how many there are
-- ARGV[8]     most        grants of this call at most
-- ARGV[9]     rest        µs; the replica does not ask again before, if it must wait
-- ARGV[10]    more        micro-tokens that it would bid for besides
-- ARGV[11]    seq         sequence for the counter, > 0; 0: the pool is a bucket
-- ARGV[12]    held        slots that the replica holds or has asked for before
-- ARGV[13]    nbids       bids; none withdraws the replica's claim
-- then the bids, one after the other, as prelude_bid says
--
-- Reply, integers unless quoted:
--   status     1 decided; 2 overtaken on the counter, 3 too late: nothing changed
--   now        Redis time, µs
--   wait       µs until this replica's first bid left may ask again; -1: none
--   bucket     µs until the bucket covers that bid, were nobody else there
--   "before", "after"   virtual time at the start and at the end
--   per bid:   0 waits, 1 granted, 2 blocked by its own limits, 3 overtaken;
--              "tag" (finish tag), "since" (to be sent next time); then per
--              bucket level and wait, per counter 0/1/2, as in admit, or
--              zeros where its turn did not come
--
-- O(bids^2 + claims + what the bids need). Not idempotent.

local PATIENCE = 200000 -- µs; so late may a replica notice that those before it left

local now = redis_now()
if now > tonumber(ARGV[1]) then
  return { 3, now }
end
local rate = rate_of(ARGV[5], ARGV[6], ARGV[7])
local p = {
  now = now, inc = ARGV[2], ttl = tonumber(ARGV[3]), tags = KEYS[2], claims = claims_read(KEYS[3], ARGV[2], now),
  rate = rate, limit = rate.limit, period = rate.period, burst = rate.burst,
  seq = tonumber(ARGV[11]), held = tonumber(ARGV[12]),
  level = 0, full = 0, tokens = 0, stamp = 0, stands = false, lease = false,
  v = 0, before = false, after = false, text = false,
}
if not stock_open(p, KEYS[1]) then
  return { 2, now }
end
local bids, level = bids_read(p, tonumber(ARGV[13])), p.level
local granted, head, need = bids_serve(p, bids, tonumber(ARGV[8]))

if granted > 0 then
  stock_take(p, KEYS[1], level - p.level)
  bids_store(p, bids)
end
local wait, alone, cost = -1, -1, 0
if head then
  -- Those before it empty the pool more than once: no use in coming when it could be full.
  wait = math.max(stock_wait(p, math.min(need, p.full)), math.min(PATIENCE, stock_wait(p, need)))
  alone = stock_wait(p, head.cost)
  local rests = flow(math.max(0, tonumber(ARGV[9]) - wait), p.limit, p.period)
  cost = head.cost + math.min(rests, bids_behind(bids, head) + tonumber(ARGV[10]))
end
claims_write(KEYS[3], p.claims, now, p.inc, head, cost, now + wait + tonumber(ARGV[4]))
return bids_reply(p, bids, { 1, now, wait, alone, p.before, p.after or p.before })
