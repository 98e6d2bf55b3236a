-- Lengthens a lease while the slot of the lock moves from one node of a cluster to
-- another, when Redis refuses every script that names a key which does not exist: with
-- one key alone. It never shortens, since other parts of the lease may end later.
--
-- KEYS[1]  what has the end: the sorted set of the parts of a lease; the lock; of kind
--          read, one of its two keys; of kind semaphore, the sorted set of leases
-- ARGV[1]  owner, or the name of a part; "" where the key is the owner's own
-- ARGV[2]  from now, ms
-- returns  1 when done, 0 when the key does not have it
local is = redis.call('type', KEYS[1]).ok
local t = redis.call('time')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if is == 'zset' then
  local till = redis.call('zscore', KEYS[1], ARGV[1])
  if not till or tonumber(till) <= now then
    return 0
  end
  redis.call('zremrangebyscore', KEYS[1], '-inf', '(0') -- nothing: a write that needs no memory
  redis.call('zadd', KEYS[1], string.format('%.0f', math.max(till, now + ARGV[2])), ARGV[1])
  local left = redis.call('pttl', KEYS[1])
  if left >= 0 and left < tonumber(ARGV[2]) then
    redis.call('pexpire', KEYS[1], ARGV[2])
  end
  return 1
end
if is == 'none' or
    is == 'hash' and redis.call('hexists', KEYS[1], ARGV[1]) == 0 or
    is == 'string' and ARGV[1] ~= '' and redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
