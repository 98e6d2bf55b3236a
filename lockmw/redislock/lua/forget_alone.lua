-- Forgets stored answers without the lock, for an operator. Earlier calls store none
-- afterwards: see forget.lua. But a call that has the lock does, as its answer may be that of
-- a settlement which is not over.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fence
-- KEYS[3]..  the stored answers
-- returns  how many there were
local fence, found = tonumber(redis.call('get', KEYS[2]) or 0), 0
if redis.call('exists', KEYS[1]) == 0 then
  fence = fence + 1
end
for i = 3, #KEYS do
  local there = redis.pcall('get', KEYS[i])
  if type(there) == 'table' or there and not string.find(there, '^%d+$') then
    found = found + 1
  end
  redis.call('del', KEYS[i])
  if fence > 1 then -- the lock was granted before
    redis.call('set', KEYS[i], string.format('%.0f', fence), 'px', 3600000)
  end
end
return found
