-- As stored.lua, before a call within a lease: an answer says nothing if a call of this lease has
-- suspended it. This call may act anew.
--
-- KEYS[#KEYS]  the stored answer, a string; the rest as in reenter.lua
-- returns  its text, if there is one
local stored = redis.call('get', KEYS[#KEYS])
local text, fence = answer_in(stored)
if text and not (fence and granted(KEYS[1], ARGV[2]) == tonumber(fence)) then
  return stored
end
