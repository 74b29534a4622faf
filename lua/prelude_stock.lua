-- prelude_stock: what a pool gives out. Joined in front of pool. p is the call.
--
-- A pool is a bucket (p.seq = 0), or the slots of an in-flight counter: then it
-- holds what is free of them, and nothing flows in by itself. Slots are micro-
-- slots here, so that all else is the same for both. What other replicas hold is
-- counted as in prelude_lease; of the caller it is p.held, as it states itself.

-- A slot may come free at any moment, whatever the mean says: nobody is told to
-- wait for longer, in µs. So late does a waiter elsewhere notice.
local SLOT_REST = 40000

-- stock_open reads p.level, what is there, and p.full, the most. It returns false if a later statement
-- of this replica about its slots came first: p.held is old, ask again.
local function stock_open(p, key)
  p.full = p.burst
  if p.seq == 0 then
    p.tokens, p.stamp, p.level, p.stands = bucket_read(key, p.now, p.rate)
    p.full = p.stands and p.stands.burst or p.burst -- it may be less for now
    return true
  end
  p.lease = lease_read(key, p.inc, math.floor(p.now / 1000))
  p.level = p.burst - 1000000 * (p.lease.total - p.lease.own + p.held)
  return p.lease.seq < p.seq
end

-- stock_take writes what was granted.
local function stock_take(p, key, granted)
  if p.seq == 0 then
    bucket_write(key, p.now, p.stamp, p.level, p.stands or p.rate)
    p.tokens, p.stamp = p.level, math.max(p.now, p.stamp)
    return
  end
  local held = p.held + granted / 1000000
  lease_write(key, p.inc, p.lease, held, p.seq, math.floor(p.now / 1000), p.ttl)
end

-- stock_wait tells the µs until need micro-tokens are there: for slots half the
-- time in which as many come free on average, for they come at random.
local function stock_wait(p, need)
  if p.seq == 0 then
    return math.max(0, bucket_until(p.now, p.tokens, p.stamp, need, p.rate, p.stands))
  end
  return math.min(SLOT_REST, math.ceil(fill(math.max(0, need - p.level), p.limit, p.period) / 2))
end
