-- Takes an exclusive lock in Redisson's format, with a fence, or tells how long
-- it stays taken.
--
-- KEYS[1]  the lock: a hash {owner: count}. Another format there is an error
--          (WRONGTYPE), never a grant.
-- KEYS[2]  the fence: the number of the last grant. It lives in the lock's slot.
-- ARGV[1]  lease, ms
-- ARGV[2]  owner
-- ARGV[3]  how long the fence outlives its last grant, ms
-- returns  {1, fence} when granted, {0, ms left} when another holds it (ms left
--          is -1 for a lock without an end)
--
-- Safe to repeat: a client that lost the answer and asks again finds its own
-- field, and the count stays 1.
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return {0, redis.call('pttl', KEYS[1])}
end
-- The fence is worked out before anything is written: a script that fails half
-- way is not undone.
--
-- The clock keeps the fence growing where the number was lost (expiry, a
-- failover to a replica that missed it); the number, where the clock stepped
-- back. Microseconds since 1970 stay below 2^53, so a double holds them exactly.
local now = redis.call('time')
local fence = now[1] * 1000000 + now[2]
local last = tonumber(redis.call('get', KEYS[2]) or 0) or 0
if last >= fence then
  fence = last + 1
end
redis.call('set', KEYS[2], string.format('%.0f', fence), 'px', ARGV[3])
redis.call('hset', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return {1, fence}
