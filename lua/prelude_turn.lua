-- prelude_turn: the bids of a pool call. Joined in front of pool (see
-- prelude_pool). They stand in ARGV one after the other:
--
-- ARGV[a]     tenant      id
-- ARGV[a+1]   cost        micro-tokens of the pool, 1..burst
-- ARGV[a+2]   weight      > 0
-- ARGV[a+3]   since       V when it began to wait, as told before; -1 unknown
-- then the sequence for its counters, and what else prelude_bid names:
-- ARGV[a+5]   nb          buckets besides the pool's
-- ARGV[a+6]   nl          counters
--
-- KEYS[2]     tags
--
-- ARGV[13]    nbids

-- The bids with their tags: start s, finish tag f; s is later by one turn for each
-- of its tenant's claims elsewhere that came before. Texts are kept where the reply
-- repeats them: printing a number costs more than all else. A table gets every
-- field at once, or costs more again.
local n, a, k, first = ARGV[13] + 0, 14, 4, own
local bids, names = { unpack(ARGV, 1, n) }, { TAG_TIME, unpack(ARGV, 1, n) } -- long enough, to be filled
for i = 1, n do
  bids[i], names[i + 1] = a, ARGV[a]
  a = a + 7 + 5 * ARGV[a + 5] + 2 * ARGV[a + 6]
end
local tags = redis.call('ZMSCORE', KEYS[2], unpack(names))
local v_text = tags[1] or '0'
local v = v_text + 0
local floor = tag_floor(v, burst)
for i = 1, n do
  a = bids[i]
  local cost, text, f_text, behind = ARGV[a + 1] + 0, ARGV[a + 3], tags[i + 1], peers and peers[ARGV[a]] or 0
  local since = text + 0
  if since < 0 or since > v then -- unknown, or the store lost its state
    since, text = v, v_text
  end
  local f = f_text and f_text + 0 or max(since, floor)
  local s = max(f, since)
  local b = { at = a, cost = cost, state = 0, since = since, since_text = text, f = f, f_text = f_text, s = s }
  if ARGV[a] == first then -- the claim is that of the first bid
    first, behind = false, before
  end
  if behind > 0 then
    b.behind = behind * cost / 1000000 / ARGV[a + 2]
    b.s = s + b.behind
  end
  if ARGV[a + 5] ~= '0' or ARGV[a + 6] ~= '0' then
    b.nb, b.nl, b.key = ARGV[a + 5] + 0, ARGV[a + 6] + 0, k
    k = k + b.nb + b.nl
  end
  bids[i] = b
end
