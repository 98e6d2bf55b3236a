-- Gives a lock up and wakes who waits for it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the record of its holders; of an exclusive lock, unless the owner is not on it
-- KEYS[3]..  of the kind
-- ARGV[1]  owner
-- ARGV[2]  publish or, on a cluster, spublish
-- ARGV[3]  the channel
-- ARGV[4]  the entry, of a call within the owner's lease
-- returns  0 when the owner does not hold the lock, or not by this entry, or does
--          no more; 1 when it gave up its part and others still hold it; else 2 and
--          how many heard of it
local freed = leave(KEYS[1], ARGV[1], ARGV[4] or ARGV[1], KEYS[2])
if freed == nil then
  return 0
end
if freed == false then
  return 1
end
return 2 + announce(KEYS[1], ARGV[2], ARGV[3])
