-- Before an acquire: returns the stored answer of an earlier call if that call ended after the caller
-- came, and takes nothing. Only the clock of Redis takes part.
--
-- KEYS[#KEYS]  the stored answer of store_since.lua; the rest as in acquire.lua
-- ARGV[#ARGV]  how long ago the caller came, microseconds
-- returns  its text, if there is one
local stored = redis.call('get', KEYS[#KEYS])
local ended = stored and tonumber(string.match(stored, '^(%d+) '))
if ended then
  local t = redis.call('time')
  if ended > t[1] * 1000000 + t[2] - ARGV[#ARGV] then
    return stored
  end
end
