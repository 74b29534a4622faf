-- settle: correct buckets after the fact and restate counters, in one step.
--
-- KEYS[i]     buckets, i = 1..nb          hw:{hw}:b|t:<dimension>:<32 hex>
-- KEYS[nb+j]  counters, j = 1..nl         hw:{hw}:l:<dimension>:<32 hex>
-- KEYS[k]     tags, k = nb+nl+1..#KEYS    hw:{hw}:p:<dimension>:<32 hex>:t
--
-- ARGV[1]     not_after   Redis time, µs; later than this nothing is given back
-- ARGV[2]     inc         incarnation of the replica; does not begin with _
-- ARGV[3]     seq         sequence of the first attempt in that incarnation, > 0
-- ARGV[4]     ttl         ms; lifetime of the replica's entries
-- ARGV[5]     nb          number of buckets
-- ARGV[6]     retry       0 first attempt; 1 its outcome is unknown, its fence past
-- ARGV[7]     nl          number of counters
-- per bucket, a = 5*i+3:
-- ARGV[a]     limit       micro-tokens per period; 0: left alone
-- ARGV[a+1]   period      µs, > 0
-- ARGV[a+2]   burst       micro-tokens; the level never rises above it, nor above
--             what stands while replicas disagree
-- ARGV[a+3]   delta       micro-tokens; > 0 gives back, < 0 charges
-- ARGV[a+4]   max_debt    micro-tokens; the level never falls below minus this
-- per counter, c = 5*nb+2*j+6:
-- ARGV[c]     held        slots whose requests run
-- ARGV[c+1]   want        held, and those asked for by calls not yet answered
-- per tags key, which belongs to one of the buckets, t = 3*k+2*nb-nl+5:
-- ARGV[t]     i           that bucket, 1..nb
-- ARGV[t+1]   tenant      whose turn is corrected by the bucket's delta
-- ARGV[t+2]   weight      > 0, of its tenant when it had its turn
--
-- Reply, integers:
--   status     0 nothing to correct: the first attempt ran, 1 all corrected,
--              2 charged only: giving back was too late or in doubt
--   now        Redis time, µs
--   per bucket: level (micro-tokens)
--   per counter: own count before, own count now, total of all replicas now
--
-- A first attempt applies everything. A retry asks the counters' sequences: its
-- own one stored means that the first ran, an older one that it did not. With
-- no counter, or overtaken, nobody can tell: it charges again (at least once)
-- and gives nothing back (at most once), so that doubt only admits less. A tag
-- is corrected if and when its bucket is.

local now = redis_now()
local inc, seq, ttl, nb = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now_ms, nl = math.floor(now / 1000), tonumber(ARGV[7])

local leases, ran, undone = {}, false, false
for j = 1, nl do
  local l = lease_read(KEYS[nb + j], inc, now_ms)
  leases[j] = l
  ran = ran or l.seq == seq
  undone = undone or (l.seq >= 0 and l.seq < seq)
end
local charge, refund = true, now <= tonumber(ARGV[1])
if ARGV[6] == '1' then
  charge = not ran
  refund = refund and undone and not ran
end

local reply, applied = { refund and 1 or (charge and 2 or 0), now }, {}
for i = 1, nb do
  local a = 5 * i + 3
  local rate = rate_of(ARGV[a], ARGV[a + 1], ARGV[a + 2])
  local delta = tonumber(ARGV[a + 3])
  local _, stamp, level, held = bucket_read(KEYS[i], now, rate)
  if rate.limit > 0 and ((delta < 0 and charge) or (delta > 0 and refund)) then
    local stands = held or rate
    level = math.min(stands.burst, math.max(-tonumber(ARGV[a + 4]), level + delta))
    bucket_write(KEYS[i], now, stamp, level, stands)
    applied[i] = { delta, rate.burst }
  end
  reply[i + 2] = level
end
for j, l in ipairs(leases) do
  local c, r = 5 * nb + 2 * j + 6, nb + 3 * j
  local key, held, want = KEYS[nb + j], tonumber(ARGV[c]), tonumber(ARGV[c + 1])
  reply[r], reply[r + 1], reply[r + 2] = lease_sync(l, key, inc, held, want, seq, now_ms, ttl)
end
for k = nb + nl + 1, #KEYS do
  local t = 3 * k + 2 * nb - nl + 5
  local done = applied[tonumber(ARGV[t])]
  if done then
    tag_correct(KEYS[k], ARGV[t + 1], tonumber(ARGV[t + 2]), done[1], done[2])
  end
end
return reply
