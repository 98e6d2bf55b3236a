-- Replaces the state of a shared filter.
--
-- KEYS[1]  the state
-- ARGV[1]  fence of the turn that writes
-- ARGV[2]  generation
-- ARGV[3]..  field, value, ...
-- returns  1, or 0 when a later turn has written it, or it is a later generation's
local now = redis.call('hmget', KEYS[1], 'fence', 'generation')
if tonumber(now[1] or 0) > tonumber(ARGV[1]) or tonumber(now[2] or 0) > tonumber(ARGV[2]) then
  return 0
end
redis.call('del', KEYS[1])
redis.call('hset', KEYS[1], unpack(ARGV, 3))
return 1
