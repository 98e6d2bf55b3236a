-- Gives a lock up while its slot moves from one node of a cluster to another: see
-- alone_extend.lua.
--
-- KEYS[1]  the lock; of kind semaphore, the sorted set of leases
-- ARGV[1]  owner
-- ARGV[2]  publish or spublish
-- ARGV[3]  the channel; "" for none
-- ARGV[4]  what to publish
-- returns  as release.lua; an error where calls within the lease may go on, since their
--          names stand in another key
if redis.call('type', KEYS[1]).ok == 'zset' then
  if not redis.call('zscore', KEYS[1], ARGV[1]) then
    return 0
  end
  redis.call('zremrangebyscore', KEYS[1], '-inf', '(0') -- nothing: a write that needs no memory
  redis.call('zadd', KEYS[1], 0, ARGV[1]) -- it has ended: the next to ask returns its permit
else
  local entered = redis.call('hget', KEYS[1], ARGV[1])
  local reading = redis.call('hget', KEYS[1], 'mode') == 'read'
  -- A release that was refused half way has left the mode alone.
  if not entered and not (reading and redis.call('hlen', KEYS[1]) == 1) then
    return 0
  end
  if entered and entered ~= '1' then
    return redis.error_reply('TRYAGAIN calls within the lease go on')
  end
  redis.call('hdel', KEYS[1], ARGV[1])
  if reading and redis.call('hlen', KEYS[1]) > 1 then
    return 1
  end
  redis.call('del', KEYS[1])
end
if ARGV[3] == '' then
  return 2
end
return 2 + redis.call(ARGV[2], ARGV[3], ARGV[4])
