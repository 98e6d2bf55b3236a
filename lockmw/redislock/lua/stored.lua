-- Before an acquire: returns the stored answer of an earlier call, and takes nothing. One that is
-- suspended says nothing as long as the call that has suspended it has the lock.
--
-- KEYS[2]      the last fence
-- KEYS[#KEYS]  the stored answer, a string; the rest as in acquire.lua
-- returns  its text, if there is one
local stored = redis.call('get', KEYS[#KEYS])
local text, fence = answer_in(stored)
if text and not (fence and fence == redis.call('get', KEYS[2]) and redis.call('exists', KEYS[1]) == 1) then
  return stored
end
