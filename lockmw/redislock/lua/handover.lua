-- Gives a lock up to a waiter of the same process: a release and an acquire in
-- one, with nobody in between.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fence
-- KEYS[3]..  of the kind
-- the last key  the record of its holders
-- ARGV[1]  lease of the new holder, ms
-- ARGV[2]  the new holder
-- ARGV[3]  how long the fence outlives its last grant, ms; 0: for ever
-- ARGV[4]  the old holder
-- returns  the new fence; 0 when the old holder does not hold the lock; -1 when it
--          gave up its part and calls within it go on
local freed = leave(KEYS[1], ARGV[4], ARGV[4], KEYS[#KEYS])
if freed == false then
  return -1
end
if freed == nil then
  local _, _, fence = taken(KEYS[1], ARGV[2])
  return fence or 0 -- a repeated question finds the new holder there already
end
local fence, text = next_fence(KEYS[2], ARGV[3])
take(KEYS[1], ARGV[2], ARGV[1], text)
return fence
