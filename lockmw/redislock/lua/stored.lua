-- Before an acquire: returns the stored answer of an earlier call, and takes nothing.
--
-- KEYS[#KEYS]  the stored answer, a string
-- returns  its text, if there is one
local stored = redis.call('get', KEYS[#KEYS])
if stored then
  return stored
end
