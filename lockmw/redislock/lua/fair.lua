-- Redisson's RFairLock: the hash of hash.lua, a list of the owners that wait, and
-- a sorted set of until when each of them counts as alive, in ms since 1970.
--
-- KEYS[3]  the list
-- KEYS[4]  the sorted set
--
-- Our waiters say a few seconds ahead that they are alive, and again at each
-- poll, so one that died is passed over soon. Redisson's say it once, for as long
-- as they will wait.

-- first returns the first waiter that is alive, and until when, and forgets the
-- dead before it.
local function first(queue, ends)
  local now = now_ms()
  while true do
    local waiter = redis.call('lindex', queue, 0)
    if not waiter then
      return nil
    end
    local till = tonumber(redis.call('zscore', ends, waiter) or 0)
    if till > now then
      return waiter, till - now
    end
    redis.call('lpop', queue)
    redis.call('zrem', ends, waiter)
  end
end

local function taken(lock, owner)
  local held = redis.call('exists', lock) == 1
  if held and redis.call('hexists', lock, owner) == 1 then
    return nil
  end
  if held and redis.call('hexists', lock, 'mode') == 1 then
    return -1, 'FOREIGN the key holds a read-write lock'
  end
  local patience = tonumber(ARGV[4])
  local waiter, alive = first(KEYS[3], KEYS[4])
  if not held and (not waiter or waiter == owner) then
    return nil
  end
  if patience > 0 then
    local at = string.format('%.0f', now_ms() + patience)
    if redis.call('zadd', KEYS[4], at, owner) == 1 then
      redis.call('rpush', KEYS[3], owner)
    end
  end
  if held then
    return redis.call('pttl', lock)
  end
  return alive -- until the first in line, if it died, is passed over
end

local function take(lock, owner, lease)
  if redis.call('zrem', KEYS[4], owner) == 1 then
    redis.call('lrem', KEYS[3], 1, owner)
  end
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, lease)
end

local function drop(lock, owner, record)
  local entered = redis.call('hget', lock, owner)
  if not entered then
    return nil
  end
  if tonumber(entered) > 1 then
    redis.call('hincrby', lock, owner, -1)
    return false
  end
  redis.call('del', lock, record)
  return true
end

local function renew(lock, owner, ms)
  return redis.call('hexists', lock, owner) == 1 and redis.call('pexpire', lock, ms) == 1
end

-- Only the first in line is told: each waiter has a channel of its own.
local function announce(_, publish, channel)
  local waiter = first(KEYS[3], KEYS[4])
  if not waiter then
    return 0
  end
  return redis.call(publish, channel .. ':' .. waiter, '0')
end

local function enter(lock, owner)
  redis.call('hincrby', lock, owner, 1)
end
