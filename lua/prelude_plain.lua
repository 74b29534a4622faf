-- prelude_plain: most admits, at less than half the price. Joined in front of all
-- else of admit, with prelude_slots, prelude_each and prelude_spend after it. They
-- define no function: every call of a script makes its functions anew, and that
-- alone costs as much as a decision. So a plain call is answered before the first.
--
-- Plain is a call each of whose buckets is absent or holds the very rate that all ask
-- for who name it, without a hold, and with a stamp that is not ahead.
-- Whatever else there may be is found before anything has changed, and left to the
-- preludes behind: they would answer a plain call alike.
--
-- KEYS as admit has them, bucket i of decision d at k = (d-1)*nb+i. ARGV too: those
-- of a rate begin at 4*rate+3, a+6 with a = 4*rate-3; those of decision d at c:
--
-- KEYS[k]
-- ARGV[3] ARGV[4] ARGV[5] ARGV[6]           nb, nl, nc, nr
-- ARGV[a+6] ARGV[a+7] ARGV[a+8]             limit, period, burst of a rate
-- ARGV[c+2*i] ARGV[c+2*i+1]                 rate and cost of bucket i
-- ARGV[c-(k-f)/nb*step+2*i]                 rate of bucket f, the first with that key

local TOP = 9007199254740992 -- EXACT of prelude_flow
local call, find, format, sub, floor = redis.call, string.find, string.format, string.sub, math.floor

-- Where decision d has its arguments, from open+(d-1)*step on, and its reply, each
-- numbers long.
local nb, nl, nc, open = ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, 4 * ARGV[6] + 7
local step, each = 2 + 2 * nb + 2 * nl, 1 + 2 * nb + nl + nc
local n = (#ARGV + 1 - open) / step

local plain, now, time = true, 0, call('TIME')
now = time[1] * 1000000 + time[2]
-- Of buckets by k: their texts, true once it is to be written, and a span under -k; and
-- their levels, under the first k of each key, which met knows by key if there are
-- several decisions. Of counters alike, see prelude_slots.
local stored, level, met = nb > 0 and call('MGET', unpack(KEYS, 1, n * nb)) or {}, {}, n > 1 and {}
-- A list that grows costs more than what it holds: these have all their room at once.
local reply = n * each > 8 and { 1, now, unpack(ARGV, 1, n * each) }
  or { 1, now, nil, nil, nil, nil, nil, nil, nil, nil }
local rates = { nil, nil, nil, nil } -- of each, from a on: limit, period, burst and how a bucket names it
for a = 1, open - 7, 4 do
  local limit, period, burst = ARGV[a + 6], ARGV[a + 7], ARGV[a + 8]
  rates[a], rates[a + 1], rates[a + 2] = limit + 0, period + 0, burst + 0
  rates[a + 3] = ':' .. burst .. ':' .. limit .. ':' .. period
end
for d = 1, n do
  local c, r = open + (d - 1) * step, 3 + (d - 1) * each
  for i = 1, plain and nb or 0 do
    local k, a, cost = (d - 1) * nb + i, 4 * ARGV[c + 2 * i] - 3, ARGV[c + 2 * i + 1] + 0
    local limit, burst, rate, f = rates[a], rates[a + 2], rates[a + 3], met and met[KEYS[k]]
    reply[r + 2 * i] = cost -- for prelude_each, until it has been decided
    if limit == 0 or cost > burst then
      plain = false
    elseif f then
      plain = (k - f) % nb == 0 and ARGV[c - (k - f) / nb * step + 2 * i] == ARGV[c + 2 * i]
    else
      local text, full = stored[k], burst
      if met then
        met[KEYS[k]] = k
      end
      if text then -- taken apart without string.match, which makes a text of all of it
        local colon = find(text, ':', 1, true)
        local last = find(text, ':', colon + 1, true) or 0
        local tail = last + #rate
        plain = find(text, rate, last, true) == last
        if plain and tail <= #text then -- a span much longer than its own, see prelude_change
          plain = find(text, ':0:', tail, true) == tail and sub(text, tail + 3) - 2 > burst * rates[a + 1] / limit
          stored[-k] = sub(text, tail)
        end
        if plain then
          local tokens, past = sub(text, 1, colon - 1) + 0, now - sub(text, colon + 1, last - 1)
          full = past * limit / rates[a + 1]
          full = tokens + (full - full % 1) -- as flow in prelude_flow, without a function's price
          full = full > burst and burst or full
          plain = past >= 0 and tokens > burst - TOP
        end
      end
      level[k] = full
    end
    if not plain then
      break
    end
  end
end
