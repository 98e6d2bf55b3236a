-- Forgets stored answers without the lock, for an operator. Earlier calls store none
-- afterwards: see forget.lua. But a call that has the lock does, as its answer may be that of
-- a settlement which is not over.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fence
-- KEYS[3]..  the stored answers
-- returns  how many there were
local last, found = redis.call('get', KEYS[2]), 0
local kind, grant = redis.call('type', KEYS[1]).ok, nil
if kind == 'hash' then
  grant = redis.call('hget', KEYS[1], 'ordergate_fence')
elseif kind == 'string' then
  grant = redis.call('get', beside(KEYS[1], 'ordergate_grant'))
end
local fence = tonumber(last or 0)
if not last or not grant or string.match(grant, '%d+$') ~= last then -- nobody, or not one of ours
  fence = fence + 1
end
for i = 3, #KEYS do
  local there = redis.pcall('get', KEYS[i])
  if type(there) == 'table' or answer_in(there) then -- or something else than an answer
    found = found + 1
  end
  redis.call('del', KEYS[i])
  if last then -- the lock was granted before
    redis.call('set', KEYS[i], 'forgotten ' .. string.format('%.0f', fence), 'px', 3600000)
  end
end
return found
