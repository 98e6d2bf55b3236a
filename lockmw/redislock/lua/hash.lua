-- Redisson's RLock and RFencedLock: the hash of owners.lua.

local key_type = 'hash'

local function taken(lock, owner)
  if redis.call('exists', lock) == 0 or redis.call('hexists', lock, owner) == 1 then
    return nil
  end
  if redis.call('hexists', lock, 'mode') == 1 then
    return -1, 'FOREIGN the key holds a read-write lock'
  end
  return redis.call('pttl', lock)
end

local function take(lock, owner, lease)
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, lease)
end
