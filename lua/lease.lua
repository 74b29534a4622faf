-- lease: restate what a replica holds, to renew and to release. Never acquires.
--
-- KEYS[i]     counters                    hw:{hw}:l:<dimension>:<32 hex>
--
-- ARGV[1]     inc         incarnation of the replica; does not begin with _
-- ARGV[2]     seq         sequence of this call in that incarnation, > 0
-- ARGV[3]     ttl         ms; lifetime of the replica's entries
-- per counter, c = 2*i+2:
-- ARGV[c]     held        slots whose requests run
-- ARGV[c+1]   want        held, and those asked for by calls not yet answered
--
-- Reply, integers:
--   1, now     Redis time, µs
--   per counter: own count before, own count now, total of all replicas now
--
-- The count becomes max(held, min(before, want)): a lost release heals, a lost
-- entry (its replica slept past the ttl) comes back even above the cap, and
-- then nobody is admitted until it has drained. Idempotent; a call overtaken
-- by a later one changes nothing. O(counters), + replicas when some expired: only
-- then does a call come as far as this, prelude_restate answers the others, alike.

local now = redis_now()
local now_ms = math.floor(now / 1000)
local inc, seq, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local reply = { 1, now }
for i = 1, #KEYS do
  local c = 2 * i + 2
  local l = lease_read(KEYS[i], inc, now_ms)
  local before, count, total =
    lease_sync(l, KEYS[i], inc, tonumber(ARGV[c]), tonumber(ARGV[c + 1]), seq, now_ms, ttl)
  reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = before, count, total
end
return reply
