-- Lets a holder into its lock once more.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fence
-- KEYS[3]..  of the kind
-- the last but one  the record of its holders
-- the last key  this entry: a string, so that to ask twice is to enter once
-- ARGV[1]  lease, ms
-- ARGV[2]  owner
-- ARGV[3]  how long the fence outlives its last grant, ms
-- ARGV[4]  how long the entry may last, ms
-- ARGV[5]  what the record says of a lease that is held
-- returns  the fence of the lease that is re-entered, 0 when the owner does not
--          hold the lock. An inner write with a greater fence would shut out the
--          outer call's own.
local recorded = redis.call('hget', KEYS[#KEYS - 1], ARGV[2])
if recorded and string.find(recorded, ARGV[5], 1, true) then
  return 0 -- it is renewed no more, by nobody
end
if not renew(KEYS[1], ARGV[2], math.max(tonumber(ARGV[1]), ends_in(KEYS[1], ARGV[2]))) then
  return 0
end
if redis.call('set', KEYS[#KEYS], 1, 'nx', 'px', ARGV[4]) then
  enter(KEYS[1], ARGV[2])
end
return tonumber(redis.call('get', KEYS[2]) or next_fence(KEYS[2], ARGV[3]))
