-- The readers' side of Redisson's RReadWriteLock: a hash {mode: read, owner: how
-- often it entered, ...}, and beside it one string for each entry, whose end is
-- that of the reader's lease: see entries.lua. The hash lasts as long as the longest
-- of them. Of ours, all entries of a reader end together.

-- scanned is how many readers a script looks at. Of a crowd it looks at some, by
-- chance, so that those that died do not pile up.
local scanned, sampled = 32, 8

local function granted(lock, owner)
  local fence = noted(lock, owner)
  return fence and redis.call('hexists', lock, owner) == 1 and fence or nil
end

local function taken(lock, owner)
  if redis.call('exists', lock) == 0 then
    return nil
  end
  local mode = redis.call('hget', lock, 'mode')
  if not mode then
    return -1, 'FOREIGN the key holds a lock that is no read-write lock'
  end
  if mode == 'read' then
    return nil, nil, granted(lock, owner)
  end
  return redis.call('pttl', lock)
end

local function take(lock, owner, lease, fence)
  if redis.call('hset', lock, 'mode', 'read', owner, 1) == 2 then
    redis.call('del', beside(lock, 'ordergate_holders')) -- what a lock left that was deleted
  end
  redis.call('set', timeouts(lock, owner) .. ':1', 1, 'px', lease)
  note(lock, owner, lease, fence)
  lengthen(lock, lease)
end

-- remaining returns how long the longest lease of the readers lasts, in ms: of a
-- crowd, how long the hash does. It forgets readers of ours that died. Redisson's
-- stay: they are not on record.
local function remaining(lock, record)
  local readers, longest, dead = {}, -3, {}
  if redis.call('hlen', lock) <= scanned + 1 then
    readers = redis.call('hkeys', lock)
  else
    readers, longest = redis.call('hrandfield', lock, sampled), redis.call('pttl', lock)
  end
  for _, reader in ipairs(readers) do
    local left = -2
    for i = tonumber(redis.call('hget', lock, reader)) or 0, 1, -1 do
      left = math.max(left, redis.call('pttl', timeouts(lock, reader) .. ':' .. i))
    end
    longest = math.max(longest, left)
    if left == -2 and reader ~= 'mode' then
      dead[#dead + 1] = reader
    end
  end
  for _, reader in ipairs(dead) do
    if redis.call('hdel', record, reader) == 1 then
      redis.call('hdel', lock, reader)
    end
  end
  return longest
end

local function nested(lock, owner)
  local entered = redis.call('hget', lock, owner)
  if not entered then
    return nil
  end
  return entered ~= '1'
end

local function mark(lock, owner, n)
  for i = n + 1, tonumber(redis.call('hget', lock, owner)) do
    redis.call('del', timeouts(lock, owner) .. ':' .. i)
  end
  redis.call('hset', lock, owner, n)
end

local function set_end(lock, owner, ms)
  for i = 1, tonumber(redis.call('hget', lock, owner)) do
    local entry = timeouts(lock, owner) .. ':' .. i
    if redis.call('pexpire', entry, ms) == 0 then
      redis.call('set', entry, 1, 'px', ms)
    end
  end
  redis.call('pexpire', lock, math.max(ms, remaining(lock, beside(lock, 'ordergate_holders'))))
end

local function ends_in(lock, owner)
  return redis.call('pttl', timeouts(lock, owner) .. ':1')
end

local function remove(lock, owner, record)
  for i = 1, tonumber(redis.call('hget', lock, owner)) do
    redis.call('del', timeouts(lock, owner) .. ':' .. i)
  end
  redis.call('hdel', lock, owner)
  redis.call('hdel', record, owner)
  -- Readers that died may still be in the hash; their entries have ended.
  local left = remaining(lock, record)
  if left > 0 then
    redis.call('pexpire', lock, left)
    return false
  end
  redis.call('del', lock, record)
  return true
end
