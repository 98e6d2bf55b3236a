-- Notes the size of a filter in memory, and whether it is growing.
--
-- KEYS[1]  the state
-- ARGV[1]  capacity
-- ARGV[2]  the process that builds a larger one, "" if this one does not
-- ARGV[3]..  what there is to tell of that: field, value, ...
if tonumber(redis.call('hget', KEYS[1], 'capacity') or 0) < tonumber(ARGV[1]) then
  redis.call('hset', KEYS[1], 'capacity', ARGV[1])
end
if ARGV[2] ~= '' then
  redis.call('hset', KEYS[1], 'process', ARGV[2], unpack(ARGV, 3))
else
  redis.call('hdel', KEYS[1], 'process', 'next_capacity', 'read', 'began_ms')
end
return 1
