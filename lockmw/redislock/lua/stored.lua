-- Before an acquire, or before a call within a lease: returns the stored answer of an earlier
-- call, and takes nothing. One that is forgotten has left a mark: see forget.lua.
--
-- KEYS[#KEYS]  the stored answer, a string
-- returns  its text, if there is one
local stored = redis.call('get', KEYS[#KEYS])
if stored and not string.find(stored, '^forgotten %d+$') then
  return stored
end
