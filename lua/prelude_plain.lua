-- prelude_plain: most admits, at about half the price. Joined in front of all else
-- of admit, with prelude_slots and prelude_spend after it. It defines no function:
-- every call of a script makes its functions anew, and that alone costs as much as
-- a decision. So a plain call gets its answer before the first of them.
--
-- Plain is one decision, in time, that meets no claim, and whose buckets are absent
-- or hold the very rate that is asked for, without debt and with a stamp that is
-- not ahead. Whatever else there may be is found before anything has changed, and
-- left to the preludes behind: they would answer a plain call alike.
--
-- KEYS as admit has them; the decision's arguments begin at c, a = 4*rate+3:
--
-- ARGV[3] ARGV[4] ARGV[5] ARGV[6]           nb, nl, nc, nr
-- ARGV[c]                                   not_after
-- ARGV[c+2*i] ARGV[c+2*i+1]                 rate and cost of bucket i
-- ARGV[a] ARGV[a+1] ARGV[a+2]               limit, period, burst of its rate

local TOP = 9007199254740992 -- EXACT of prelude_flow

local nb, nl, nc, c = ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, 4 * ARGV[6] + 7
local plain, granted, now = #ARGV == c + 1 + 2 * nb + 2 * nl, true, 0
local stored, reply = false, false -- of each bucket its text, later its rate as text
if plain then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  plain, stored = now <= ARGV[c] + 0, nb > 0 and redis.call('MGET', unpack(KEYS, 1, nb)) or {}
  -- A list that grows costs more than what it holds: all of it at once, whatever is in it.
  reply = { 1, now, 1, unpack(ARGV, 1, 2 * nb + nl + nc) }
end
for i = 1, plain and nb or 0 do
  local a, cost = 4 * ARGV[c + 2 * i] + 3, ARGV[c + 2 * i + 1] + 0
  local limit, period, burst = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  local rate, wait = ':' .. burst .. ':' .. limit .. ':' .. period, 0
  limit, period, burst = limit + 0, period + 0, burst + 0 -- once: each use of a text as a number parses it
  local tokens, past, level = burst, 0, burst
  if stored[i] then
    local stamp, text
    tokens, stamp, text = string.match(stored[i], '^(%d+):(%d+)(.*)$')
    past = now - (text == rate and stamp or TOP) -- what prelude_bucket calls dt
    level = past < 0 and 0 or math.min(burst, tokens + math.floor(past * limit / period))
  end
  if past < 0 or limit == 0 or cost > burst then
    plain = false
    break
  end
  if level < cost then -- as fill in prelude_flow
    local need = cost - tokens
    wait = math.min(TOP, math.ceil(need * period / limit))
    wait = (math.floor(wait * limit / period) < need and wait + 1 or wait) - past
    granted = false
  end
  reply[2 * i + 2], reply[2 * i + 3], stored[i] = level, wait, rate
end
if plain and nc > 0 then
  plain = redis.call('EXISTS', unpack(KEYS, nb + nl + 1)) == 0
  for m = 1, nc do
    reply[3 + 2 * nb + nl + m] = 0
  end
end
