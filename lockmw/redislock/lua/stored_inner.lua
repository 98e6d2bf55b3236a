-- As stored.lua, before a call within a lease: an answer says nothing if the call that got the lease is
-- about to undo it, so that this call may act anew. A call beside this one, within the same lease, may not
-- have undone it yet, or not at all. Of the calls within a lease, one at a time has a
-- name of stored answers. The outer call may have it too: an inner one may act for it.
--
-- KEYS[#KEYS]  the stored answer, a string; the rest as in reenter.lua
-- ARGV[3]  the entry, with the name behind "="
-- returns  its text, if it counts, or SUSPENDED; 0 while another call within the lease has the name
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
local name = string.match(ARGV[3], '=.*$')
for _, part in ipairs(redis.call('zrangebyscore', parts_of(KEYS[1], ARGV[2]), now_ms(), '+inf')) do
  if part ~= ARGV[3] and string.match(part, '=.*$') == name then
    return 0
  end
end
