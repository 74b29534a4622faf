-- fleet_meet: say where a replica's gossip is reached, and hear of the others.
--
-- KEYS[1]     addresses, by when they lapse   hw:{hw-fleet}:addresses
--
-- ARGV[1]     address     host:port of this replica
-- ARGV[2]     ttl         ms that it stands; 0: the replica leaves
-- ARGV[3]     most        addresses told at most, > 0: those renewed last
--
-- Reply:
--   addresses, this replica's own among them while it stands
--
-- O(log(replicas) + most). Run twice, it says the same.

local now_ms, ttl = math.floor(redis_now() / 1000), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now_ms))
if ttl == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return {}
end
redis.call('ZADD', KEYS[1], string.format('%d', now_ms + ttl), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZREVRANGE', KEYS[1], 0, tonumber(ARGV[3]) - 1)
