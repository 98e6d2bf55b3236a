-- Sets the end of a lease: to renew it, and to hold it for the last time.
--
-- KEYS[1]  the lock
-- KEYS[2]  the record of its holders
-- KEYS[3]..  of the kind
-- ARGV[1]  owner
-- ARGV[2]  from now, ms
-- ARGV[3]  what to put on record of this holder, or nothing
-- ARGV[4]  what that says of a lease that is held
-- returns  1 when done, 0 when the owner does not hold the lock (any more)
local recorded = redis.call('hget', KEYS[2], ARGV[1])
if recorded and string.find(recorded, ARGV[4], 1, true) then
  return 0 -- a renewal that was asked for before, and comes later from another connection
end
if not renew(KEYS[1], ARGV[1], ARGV[2]) then
  return 0
end
if ARGV[3] ~= '' then
  redis.call('hset', KEYS[2], ARGV[1], ARGV[3])
end
lengthen(KEYS[2], ARGV[2])
return 1
