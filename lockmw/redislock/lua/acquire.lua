-- Takes a lock, or tells how long it stays taken.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fence
-- KEYS[3]..  of the kind
-- ARGV[1]  lease, ms
-- ARGV[2]  owner
-- ARGV[3]  how long the fence outlives its last grant, ms; 0 or nothing: for ever
-- ARGV[4]..  of the kind
-- returns  the fence (above 0) when granted; else -2 less the ms until the lock
--          may become free, -1 when that is not known. An error that begins with
--          FOREIGN or WRONGTYPE when the key holds something else.
local left, foreign, fence = taken(KEYS[1], ARGV[2])
if foreign then
  return redis.error_reply(foreign)
end
if fence then -- it was granted before, and the answer lost
  last_for(KEYS[1], ARGV[2], tonumber(ARGV[1]))
  return fence
end
if left then
  return -2 - left
end
-- The fence comes first: a script that fails half way is not undone, and a number
-- that nobody was granted does no harm.
local text
fence, text = next_fence(KEYS[2], ARGV[3])
take(KEYS[1], ARGV[2], ARGV[1], text)
return fence
