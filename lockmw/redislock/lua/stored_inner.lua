-- As stored.lua, before a call within a lease: an answer says nothing if the call that got the lease is
-- about to undo it, so that this call may act anew. A call beside this one, within the same lease, may not
-- have undone it yet, or not at all.
--
-- KEYS[#KEYS]  the stored answer, a string; the rest as in reenter.lua
-- returns  its text, if it counts, or SUSPENDED
local stored = redis.call('get', KEYS[#KEYS])
if stored then
  local number = number_of(stored)
  local is_undone, may_be = undone(KEYS[1], KEYS[#KEYS], number)
  if not is_undone and not may_be then
    return stored
  end
  if may_be and not undoes(KEYS[1], KEYS[#KEYS], number, ARGV[2]) then
    return 'SUSPENDED'
  end
end
