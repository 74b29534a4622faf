-- pool: give turns in one contended bucket, in the order of the whole fleet.
--
-- KEYS[1]     bucket of the pool          hw:{hw}:b:<dimension>:<32 hex>
-- KEYS[2]     tags, virtual time          hw:{hw}:p:<dimension>:<32 hex>:t
-- KEYS[3]     claims by incarnation       hw:{hw}:p:<dimension>:<32 hex>:c
-- then what each bid needs besides, bids in order: its buckets, its counters
--
-- ARGV[1]     not_after   Redis time, µs; later than this nothing is taken
-- ARGV[2]     inc         incarnation of the replica; does not begin with _
-- ARGV[3]     ttl         ms; lifetime of the replica's counter entries
-- ARGV[4]     grace       µs; how long a claim outlives the wait it was told
-- ARGV[5]     limit       micro-tokens per period, > 0
-- ARGV[6]     period      µs, > 0
-- ARGV[7]     burst       micro-tokens
-- ARGV[8]     most        grants of this call at most
-- ARGV[9]     rest        µs; the replica does not ask again before, if it must wait
-- ARGV[10]    more        micro-tokens that it would bid for besides
-- ARGV[11]    nbids       bids; none withdraws the replica's claim
-- then the bids, one after the other, as prelude_turn and prelude_bid say
--
-- Reply, integers unless quoted:
--   status     1 decided, 3 too late: nothing changed
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

local now = redis_now()
if now > tonumber(ARGV[1]) then
  return { 3, now }
end
local inc, burst = ARGV[2], tonumber(ARGV[7])
local limit, period = tonumber(ARGV[5]), tonumber(ARGV[6])
local tokens, stamp, level, held = bucket_read(KEYS[1], now, limit, period, burst)
local claims = claims_read(KEYS[3], inc, now)

local p = {
  now = now, inc = inc, ttl = tonumber(ARGV[3]), level = level, burst = burst, tags = KEYS[2],
  claims = claims, full = held and held.burst or burst, -- what a full bucket holds, which may be less for now
  v = 0, before = false, after = false, text = false,
}
local bids = bids_read(p, tonumber(ARGV[11]))
local granted, head, need = bids_serve(p, bids, tonumber(ARGV[8]))

if granted > 0 then
  bucket_write(KEYS[1], now, stamp, p.level, limit, period, burst, held)
  bids_store(p, bids, limit, period)
  tokens, stamp = p.level, math.max(now, stamp)
end
local wait, alone, cost = -1, -1, 0
if head then
  wait = math.max(0, bucket_until(now, tokens, stamp, need, limit, period, held))
  alone = math.max(0, bucket_until(now, tokens, stamp, head.cost, limit, period, held))
  local rests = flow(math.max(0, tonumber(ARGV[9]) - wait), limit, period)
  cost = head.cost + math.min(rests, bids_behind(bids, head) + tonumber(ARGV[10]))
end
claims_write(KEYS[3], claims, now, inc, head, cost, now + wait + tonumber(ARGV[4]))
return bids_reply(p, bids, { 1, now, wait, alone, p.before, p.after or p.before })
