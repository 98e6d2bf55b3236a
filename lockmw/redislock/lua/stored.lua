-- Before an acquire, or before a call within a lease: returns the stored answer of an earlier
-- call, and takes nothing. One that is forgotten has left a mark: see forget.lua. One that is
-- suspended says nothing as long as the call that has suspended it has the lock: see suspend.lua.
--
-- KEYS[2]       the last fence
-- KEYS[#KEYS]  the stored answer, a string
-- returns  its text, if there is one
local stored = redis.call('get', KEYS[#KEYS])
if stored and not string.find(stored, '^forgotten %d+$')
  and not (redis.call('exists', KEYS[1]) == 1 and string.match(stored, '^suspended (%d+) ') == redis.call('get', KEYS[2])) then
  return stored
end
