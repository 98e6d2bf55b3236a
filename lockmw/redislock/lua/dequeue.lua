-- Takes a waiter of a fair lock out of the line. One that was told that it is
-- next, and does not want the lock any more, passes the word on.
--
-- KEYS[1]  the lock
-- KEYS[2]  not used
-- KEYS[3]  the line
-- KEYS[4]  until when each in it counts as alive
-- KEYS[5]  the same of our own waiters
-- ARGV[1]  owner
-- ARGV[2]  publish or, on a cluster, spublish
-- ARGV[3]  the channel of the lock
-- ARGV[4]  the waiter's timeout, ms
-- returns  how many heard that they are next
local line, behind = redis.call('lrange', KEYS[3], 0, -1), false
redis.call('lrem', KEYS[3], 1, ARGV[1]) -- first: a write that needs no memory
redis.call('zrem', KEYS[4], ARGV[1])
redis.call('zrem', KEYS[5], ARGV[1])
for _, waiter in ipairs(line) do
  if behind then
    redis.call('zincrby', KEYS[4], -ARGV[4], waiter)
  end
  behind = behind or waiter == ARGV[1]
end
if redis.call('exists', KEYS[1]) == 1 then
  return 0
end
return announce(KEYS[1], ARGV[2], ARGV[3])
