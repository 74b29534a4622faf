-- epoch: tell since when Redis has kept what replicas hold.
--
-- KEYS[1]     epoch                       hw:{hw}:epoch
--
-- ARGV[1]     ttl         ms; lifetime of what replicas hold, > 0
--
-- Reply:
--   "epoch"   Redis time when it began, µs, as text: it is only compared
--
-- It lives as long as any replica asks in time. Another one says that Redis was
-- emptied, or that what all replicas held has lapsed. O(1). Run twice, it says the
-- same.

local epoch = redis.call('GET', KEYS[1])
if not epoch then
  epoch = string.format('%d', redis_now())
  redis.call('SET', KEYS[1], epoch, 'PX', ARGV[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return { epoch }
