-- Gives a lock up and wakes who waits for it, in Redisson's format.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  the channel that waiters of this lock listen on
-- returns  1 when released, 0 when the owner does not hold it
--
-- The channel is no key: on one server a message has no slot.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[2], '0')
return 1
