-- Redisson's RLock and RFencedLock: the hash of owners.lua.

local key_type = 'hash'

local function taken(lock, owner)
  local left = redis.call('pttl', lock)
  if left == -2 then -- there is no such key
    return nil
  end
  local fence = granted(lock, owner)
  if fence then
    return nil, nil, fence
  end
  if redis.call('hexists', lock, 'mode') == 1 then
    return -1, 'FOREIGN the key holds a read-write lock'
  end
  return left
end

local function take(lock, owner, lease, fence)
  redis.call('hset', lock, owner, '1', 'ordergate_fence', 'f' .. fence)
  redis.call('pexpire', lock, lease)
end
