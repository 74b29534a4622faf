-- admit: n decisions, each of which takes from all its buckets and one slot of
-- all its counters, or nothing. They are made in order and share the instant and
-- the script's fixed cost; each does what a call of its own would have done.
--
-- KEYS, in each kind those of the first decision first:
-- n*nb        buckets     hw:{hw}:b|t:<dimension>:<32 hex>
-- n*nl        counters    hw:{hw}:l:<dimension>:<32 hex>
-- n*nc        claims on turns  hw:{hw}:p:<dimension>:<32 hex>:c
-- A key may come again in another decision, not in the same one.
--
-- ARGV[1]     inc         incarnation of the replica; does not begin with _
-- ARGV[2]     ttl         ms; lifetime of the replica's entries
-- ARGV[3]     nb          buckets of each decision
-- ARGV[4]     nl          counters of each
-- ARGV[5]     nc          claims keys of each
-- ARGV[6]     nr          number of rates
-- per rate, a = 4*i+3:
-- ARGV[a]     limit       micro-tokens per period; 0 blocks
-- ARGV[a+1]   period      µs, > 0
-- ARGV[a+2]   burst       micro-tokens
-- ARGV[a+3]   max_debt    micro-tokens; how far a cost above the burst may overdraw
-- per decision, from 4*nr+7 on in steps of 2+2*nb+2*nl: what prelude_take names
--
-- Reply, integers:
--   1, now     Redis time, µs
--   then per decision:
--   status     0 refused, 1 granted, 2 overtaken: send again with a new seq,
--              3 too late; it changed nothing unless 1
--   per bucket: level afterwards (micro-tokens) and wait (µs, rounded up; 0
--   covered, -1 never); per counter: 0 fits, 1 full, 2 overtaken; per claims
--   key: 1 somebody waits for a turn, which refuses. All 0 when too late
--
-- What comes as far as this is not plain: prelude_plain answers what is, alike.
-- Not idempotent: a repeated call takes tokens again. Slots are absolute, so
-- they don't add up. O(keys), + replicas when entries expired. All is read
-- before anything is written, so that an error changes nothing.

local number = tonumber
now, inc, ttl = redis_now(), ARGV[1], number(ARGV[2])
now_ms = math.floor(now / 1000)
nb, nl, nc = number(ARGV[3]), number(ARGV[4]), number(ARGV[5])
local nr, width, reply = number(ARGV[6]), 2 + 2 * nb + 2 * nl, { 1, now }
n, rates = (#ARGV - 6 - 4 * nr) / width, {}
for i = 1, nr do
  local a = 4 * i + 3
  rates[i] = rate_of(ARGV[a], ARGV[a + 1], ARGV[a + 2])
  rates[i].max_debt = number(ARGV[a + 3])
end
stored = nb > 0 and redis.call('MGET', unpack(KEYS, 1, n * nb))
claims = nc > 0 and redis.call('EXISTS', unpack(KEYS, n * (nb + nl) + 1)) > 0
for d = 1, n do
  take_decide(d, 4 * nr + 7 + (d - 1) * width, reply, 3 + (d - 1) * (1 + 2 * nb + nl + nc))
end
once_write()
return reply
