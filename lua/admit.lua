-- admit: take from every bucket and one slot of every counter, or nothing.
--
-- KEYS[i]     buckets, i = 1..nb          hw:{hw}:b|t:<dimension>:<32 hex>
-- KEYS[nb+j]  counters, j = 1..nl         hw:{hw}:l:<dimension>:<32 hex>
-- KEYS[k]     claims on turns, k > nb+nl  hw:{hw}:p:<dimension>:<32 hex>:c
--
-- ARGV[1]     not_after   Redis time, µs; later than this nothing is taken
-- ARGV[2]     inc         incarnation of the replica; does not begin with _
-- ARGV[3]     seq         sequence of this call in that incarnation, > 0
-- ARGV[4]     ttl         ms; lifetime of the replica's entries
-- ARGV[5]     nb          number of buckets
-- per bucket, a = 5*i+1:
-- ARGV[a]     limit       micro-tokens per period; 0 blocks
-- ARGV[a+1]   period      µs, > 0
-- ARGV[a+2]   burst       micro-tokens
-- ARGV[a+3]   cost        micro-tokens, >= 0; 0 takes nothing, but debt refuses it
-- ARGV[a+4]   max_debt    micro-tokens; how far a cost above the burst may overdraw
-- per counter, c = 5*nb+2*j+4:
-- ARGV[c]     cap         slots of the whole fleet
-- ARGV[c+1]   want        slots of this replica with this one: held + pending
--
-- Reply, integers:
--   status     0 refused, 1 granted, 2 overtaken: send again with a new seq,
--              3 too late; nothing changed unless 1
--   now        Redis time, µs
--   then, unless too late, per bucket: level afterwards (micro-tokens) and
--   wait (µs, rounded up; 0 covered, -1 never); per counter: 0 fits, 1 full,
--   2 overtaken; per claims key: 1 somebody waits for a turn, which refuses
--
-- Not idempotent: a repeated call takes tokens again. Slots are absolute, so
-- they don't add up. O(buckets + counters), + replicas when entries expired.

local now = redis_now()
if now > tonumber(ARGV[1]) then
  return { 3, now }
end
local inc, seq, ttl, nb = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now_ms, nl = math.floor(now / 1000), (#ARGV - 5 - 5 * nb) / 2
local reply, status, stale = { 1, now }, 1, false

local buckets = {}
for i = 1, nb do
  local a = 5 * i + 1
  local b = { tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]) }
  local tokens, stamp, level = bucket_read(KEYS[i], now, b[1], b[2], b[3])
  local wait = bucket_wait(now, tokens, stamp, level, b[1], b[2], b[3], b[4], tonumber(ARGV[a + 4]))
  if wait ~= 0 then
    status = 0
  end
  b.stamp, b.level, buckets[i] = stamp, level, b
  reply[2 * i + 1], reply[2 * i + 2] = b[1] == 0 and 0 or level, wait
end

local leases = {}
for j = 1, nl do
  local c = 5 * nb + 2 * j + 4
  leases[j] = lease_read(KEYS[nb + j], inc, now_ms)
  local full = lease_decide(leases[j], tonumber(ARGV[c]), tonumber(ARGV[c + 1]), seq)
  if full == 1 then
    status = 0
  end
  stale = stale or full == 2
  reply[2 * nb + 2 + j] = full
end
for k = nb + nl + 1, #KEYS do
  local claimed = redis.call('EXISTS', KEYS[k])
  status = claimed == 1 and 0 or status
  reply[nb + 2 + k] = claimed
end
if status == 1 and stale then
  status = 2
end
reply[1] = status
if status ~= 1 then
  return reply
end

for i, b in ipairs(buckets) do
  if b[4] > 0 then
    reply[2 * i + 1] = b.level - b[4]
    bucket_write(KEYS[i], now, b.stamp, b.level - b[4], b[1], b[2], b[3])
  end
end
for j, l in ipairs(leases) do
  local c = 5 * nb + 2 * j + 4
  if l.seq < seq then
    lease_write(KEYS[nb + j], inc, l, tonumber(ARGV[c + 1]), seq, now_ms, ttl)
  end
end
return reply
