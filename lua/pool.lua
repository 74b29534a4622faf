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
-- then the bids, one after the other, as prelude_turn says; of one ARGV[b.at],
-- and of the head ARGV[head.at], is its tenant
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

local wait, alone, cost = -1, -1, 0
if head then
  -- µs; of slots half the time in which as many come free on average: they do so at random.
  local function until_there(micro)
    if seq ~= 0 then
      return min(SLOT_REST, math.ceil(fill(max(0, micro - level), limit, period) / 2))
    elseif stands then
      return max(0, rest.bucket_until(now, tokens, stamp, micro, rate_of(ARGV[5], ARGV[6], ARGV[7]), stands))
    end
    return max(0, stamp + fill(micro - tokens, limit, period) - now)
  end
  -- Those before it empty the pool more than once: no use in coming when it could be full.
  wait = max(until_there(min(need, full)), min(PATIENCE, until_there(need)))
  alone = until_there(head.cost)
  local rests, behind = flow(max(0, ARGV[9] - wait), limit, period), ARGV[10] + 0
  for i = 1, n do
    local b = bids[i]
    behind = b.state == 0 and b ~= head and behind + b.cost or behind
  end
  cost = head.cost + min(rests, behind)
end

-- The claim of this replica is on its head. Claims live until the last is of long ago.
if own and not head then
  old = old or {}
  old[#old + 1] = inc
end
if old then
  redis.call('HDEL', KEYS[3], unpack(old))
end
if head then
  local expiry = now + wait + ARGV[4]
  local claim = tag_text(head.s) .. string.format(':%d:%d:%s', cost, expiry, ARGV[head.at])
  redis.call('HSET', KEYS[3], inc, claim)
  local ms = math.ceil((max(latest, expiry) + CLAIM_ECHO - now) / 1000)
  redis.call('PEXPIRE', KEYS[3], string.format('%d', min(MAX_TTL_MS, ms)))
end

local reply, r = { 1, now, wait, alone, v_text, after, unpack(ARGV, 1, 3 * n) }, 6
for i = 1, n do
  local b = bids[i]
  reply[r + 1], reply[r + 2] = b.state, b.f_text or texts and texts[ARGV[b.at]] or tag_text(b.f)
  reply[r + 3] = b.since_text or tag_text(b.since)
  r = r + 3
  for j = 1, b.nb and 2 * b.nb + b.nl or 0 do
    r = r + 1
    reply[r] = b.list and b.list[j] or 0 -- 0: nobody looked
  end
end
return reply
