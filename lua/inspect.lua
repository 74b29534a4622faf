-- inspect: tell what admit would find. Changes nothing.
--
-- KEYS[i]     buckets, i = 1..nb          hw:{hw}:b|t:<dimension>:<32 hex>
-- KEYS[nb+j]  counters, j = 1..#KEYS-nb   hw:{hw}:l:<dimension>:<32 hex>
--
-- ARGV[1]     inc         incarnation of the replica; does not begin with _
-- ARGV[2]     nb          number of buckets
-- per bucket, a = 5*i-2:
-- ARGV[a]     limit       micro-tokens per period; 0 blocks
-- ARGV[a+1]   period      µs, > 0
-- ARGV[a+2]   burst       micro-tokens
-- ARGV[a+3]   cost        micro-tokens, >= 0
-- ARGV[a+4]   max_debt    micro-tokens; how far a cost above the burst may overdraw
--
-- Reply, integers:
--   1, now     Redis time, µs
--   per bucket: level (micro-tokens) and wait (µs; 0 covered, -1 never)
--   per counter: own count, total of all replicas
--
-- O(buckets + counters), + replicas when entries expired.

local now = redis_now()
local inc, nb = ARGV[1], tonumber(ARGV[2])
local now_ms = math.floor(now / 1000)
local reply = { 1, now }
for i = 1, nb do
  local a = 5 * i - 2
  local rate = rate_of(ARGV[a], ARGV[a + 1], ARGV[a + 2])
  local cost, max_debt = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  local tokens, stamp, level, held = bucket_parse(redis.call('GET', KEYS[i]), now, rate)
  local wait = bucket_wait(now, tokens, stamp, level, rate, cost, max_debt, held)
  reply[2 * i + 1], reply[2 * i + 2] = rate.limit == 0 and 0 or level, wait
end
for j = 1, #KEYS - nb do
  local l = lease_read(KEYS[nb + j], inc, now_ms)
  reply[2 * (nb + j) + 1], reply[2 * (nb + j) + 2] = l.own, l.total
end
return reply
