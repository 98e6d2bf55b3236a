-- The readers' side of Redisson's RReadWriteLock: a hash {mode: read, owner: how
-- often it entered, ...}, and beside it one string for each entry, whose end is
-- that of the reader's lease: see entries.lua. The hash lasts as long as the longest
-- of them.

local function taken(lock, owner)
  if redis.call('exists', lock) == 0 then
    return nil
  end
  local mode = redis.call('hget', lock, 'mode')
  if not mode then
    return -1, 'FOREIGN the key holds a lock that is no read-write lock'
  end
  if mode == 'read' then
    return nil
  end
  return redis.call('pttl', lock)
end

local function take(lock, owner, lease)
  redis.call('hset', lock, 'mode', 'read', owner, 1)
  redis.call('set', timeouts(lock, owner) .. ':1', 1, 'px', lease)
  lengthen(lock, lease)
end

-- remaining returns how long the longest lease of the readers lasts, in ms.
local function remaining(lock)
  local longest = -3
  for _, reader in ipairs(redis.call('hkeys', lock)) do
    if reader ~= 'mode' then
      for i = tonumber(redis.call('hget', lock, reader)) or 0, 1, -1 do
        longest = math.max(longest, redis.call('pttl', timeouts(lock, reader) .. ':' .. i))
      end
    end
  end
  return longest
end

local function drop(lock, owner, record)
  local entered = tonumber(redis.call('hget', lock, owner) or 0)
  if entered == 0 then
    return nil
  end
  redis.call('del', timeouts(lock, owner) .. ':' .. entered)
  if entered > 1 then
    redis.call('hincrby', lock, owner, -1)
  else
    redis.call('hdel', lock, owner)
    redis.call('hdel', record, owner)
  end
  -- Readers that died are still in the hash; their entries have ended.
  local left = remaining(lock)
  if left > 0 then
    redis.call('pexpire', lock, left)
    return false
  end
  redis.call('del', lock, record)
  return true
end

local function renew(lock, owner, ms)
  local entered = tonumber(redis.call('hget', lock, owner) or 0)
  if entered == 0 then
    return false
  end
  for i = 1, entered do
    redis.call('set', timeouts(lock, owner) .. ':' .. i, 1, 'px', ms)
  end
  local left = remaining(lock)
  redis.call('pexpire', lock, left)
  return true
end

local function enter(lock, owner)
  local entered = redis.call('hincrby', lock, owner, 1)
  redis.call('set', timeouts(lock, owner) .. ':' .. entered, 1, 'px', ARGV[1])
end
