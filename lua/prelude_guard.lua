-- prelude_guard: refuse a call whose replica does not know yet that Redis has lost
-- what replicas hold, joined in front of pool where that is about slots. Until all
-- have stated it again, the counter says too little.
--
-- KEYS[#KEYS]  epoch, as epoch says
--
-- ARGV[#ARGV]  epoch that the replica was told last; not empty

if redis.call('GET', KEYS[#KEYS]) ~= ARGV[#ARGV] then
  return { 4, 0 }
end
