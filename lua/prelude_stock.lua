-- prelude_stock: what a pool gives out. Joined in front of pool (see prelude_pool).
--
-- A pool is a bucket (seq = 0), or the slots of an in-flight counter: then it
-- holds what is free of them, and nothing flows in by itself. Slots are micro-
-- slots here, so that all else is the same for both. What other replicas hold is
-- counted as in prelude_lease; of the caller it is what it states itself.
--
-- KEYS[1]     bucket or counter
--
-- ARGV[5] ARGV[6] ARGV[7]     limit, period, burst
-- ARGV[11]    seq
-- ARGV[12]    held

-- A slot may come free at any moment, whatever the mean says: nobody is told to
-- wait for longer, in µs. So late does a waiter elsewhere notice.
local SLOT_REST = 40000

local limit, period, burst = ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0
local seq, held, named = ARGV[11] + 0, ARGV[12] + 0, ':' .. ARGV[7] .. ':' .. ARGV[5] .. ':' .. ARGV[6]
-- What is there, as of stamp and now, and the most that can be; what stands in
-- place of the rate, if replicas disagree on it; the counter.
local tokens, stamp, level, full, stands, lease = burst, now, burst, burst, false, false
if seq ~= 0 then
  rest = others()
  lease = rest.lease_read(KEYS[1], inc, math.floor(now / 1000))
  level = burst - 1000000 * (lease.total - lease.own + held)
  if lease.seq >= seq then -- a later statement about its slots came first: held is old, ask again
    return { 2, now }
  end
else
  local stored, text = redis.call('GET', KEYS[1]), named
  if stored then
    tokens, stamp, text = match(stored, '^(-?%d+):(%d+)(.*)$')
    tokens, stamp = min(burst, tokens + 0), stamp + 0
    level = min(burst, tokens + flow(now - stamp, limit, period))
  end
  if text ~= named or stamp > now then -- not what prelude_bucket would call plain
    rest = others()
    tokens, stamp, level, stands = rest.bucket_read(KEYS[1], now, rate_of(ARGV[5], ARGV[6], ARGV[7]))
    full = stands and stands.burst or burst -- it may be less for now
  end
end
