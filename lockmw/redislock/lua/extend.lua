-- Sets the end of a lease, or of a call within one: to renew it, and to hold it for
-- the last time.
--
-- KEYS[1]  the lock
-- KEYS[2]  the record of its holders
-- KEYS[3]..  of the kind
-- ARGV[1]  owner
-- ARGV[2]  from now, ms
-- ARGV[3]  what to put on record of this holder, or nothing
-- ARGV[4]  what that says of a lease that is held
-- ARGV[5]  1 for the last time: it is no longer renewed
-- ARGV[6]  the entry, of a call within the owner's lease
-- returns  1 when done, 0 when the owner does not hold the lock (any more), or not
--          by this entry
local last = ARGV[5] == '1'
local recorded = not ARGV[6] and redis.call('hget', KEYS[2], ARGV[1])
if recorded and string.find(recorded, ARGV[4], 1, true) then
  return last and 1 or 0 -- done before; a renewal that comes late from another connection
end
if not prolong(KEYS[1], ARGV[1], ARGV[6] or ARGV[1], tonumber(ARGV[2]), last) then
  return 0
end
if ARGV[3] ~= '' then
  redis.call('hset', KEYS[2], ARGV[1], ARGV[3])
end
lengthen(KEYS[2], ARGV[2])
return 1
