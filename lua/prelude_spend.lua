-- prelude_spend: what a plain admit writes, and its reply (see prelude_plain).
--
-- KEYS[k]          bucket i of decision d at k = (d-1)*nb+i,
--                  counter j at k = n*nb+(d-1)*nl+j
--
-- ARGV[1]          inc
-- ARGV[2]          ttl
-- ARGV[c+2*i]      rate of bucket i, those of decision d from c on

if plain then
  local stamp = format(':%d', now)
  for d = 1, nb > 0 and n or 0 do
    for i = 1, nb do
      local c, k = open + (d - 1) * step, (d - 1) * nb + i
      if stored[k] == true then -- as bucket_write in prelude_store
        local a, left, ttl = 4 * ARGV[c + 2 * i] - 3, level[k], '1001' -- ms of a HOLD, at least
        local limit, period, need = rates[a], rates[a + 1], rates[a + 2] - left
        local full, span = need * period / limit, stored[-k]
        if full > 999999 or span then
          full = math.ceil(full)
          full = floor(full * limit / period) < need and full + 1 or full
          full = math.max(1000000, full) + (span and sub(span, 4) or 0)
          ttl = format('%d', math.min(315360000000, floor((full + 999) / 1000) + 1))
        end
        call('SET', KEYS[k], format('%d', left) .. stamp .. rates[a + 3] .. (span or ''), 'PX', ttl)
      end
    end
  end
  local expiry, ttl = nl > 0 and format('%d', lapse), nl > 0 and format('%d', ARGV[2] + 1000)
  for k = n * nb + 1, n * (nb + nl) do
    if stored[k] then -- as lease_write in prelude_lease
      local v = level[k]
      local first = v[3] + 0 < lapse and v[3] or expiry
      call('HSET', KEYS[k], '_t', format('%d', v[2]), '_x', first, ARGV[1], v[1] .. ':' .. expiry .. ':' .. v[4])
      call('PEXPIRE', KEYS[k], ttl, stored[k])
    end
  end
  return reply
end
