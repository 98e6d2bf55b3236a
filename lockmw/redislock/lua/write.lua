-- The writer's side of Redisson's RReadWriteLock: the hash of owners.lua, with a
-- field more, {mode: write}. The owner comes with its ":write".

local function taken(lock, owner)
  local left = redis.call('pttl', lock)
  if left == -2 then -- there is no such key
    return nil
  end
  local mode = redis.call('hget', lock, 'mode')
  if not mode then
    return -1, 'FOREIGN the key holds a lock that is no read-write lock'
  end
  local fence = mode == 'write' and granted(lock, owner)
  if fence then
    return nil, nil, fence
  end
  return left
end

local function take(lock, owner, lease, fence)
  redis.call('hset', lock, 'mode', 'write', owner, '1', 'ordergate_fence', 'f' .. fence)
  redis.call('pexpire', lock, lease)
end

-- A writer that leaves says 1, on which Redisson wakes all readers.
local function announce(_, publish, channel)
  return redis.call(publish, channel, '1')
end
