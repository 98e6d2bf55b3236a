-- Checks conditions alone, without a lock.
--
-- KEYS, ARGV  the conditions: see require.lua
-- returns  the place of the first that does not hold, 0 when all do. An error that
--          begins with CONDITION and a place when that one's key holds something else.
-- All keys lie in the slot of KEYS[1].
local place, problem = unmet(1, 1)
if problem then
  return redis.error_reply('CONDITION ' .. place .. ' ' .. problem)
end
return place
