-- Redisson's RFairLock: the hash of owners.lua, a list of the owners that wait, and
-- a sorted set of until when each of them counts as alive, in ms since 1970.
--
-- KEYS[3]  the list
-- KEYS[4]  the sorted set
-- KEYS[5]  another, of our own waiters alone
--
-- Our waiters say a few seconds ahead that they are alive, and again at each
-- poll, in KEYS[5], so one that died is passed over soon. Redisson's say it once,
-- for as long as they will wait.
--
-- The times in KEYS[4] add up along the line: a waiter of Redisson's counts as alive for as
-- long as it will wait after the one before it, and whoever leaves the line, with
-- the lock or without, takes its own share off the times of all that stay. Ours do
-- the same with the timeout for a share, or the next of Redisson's to get the lock
-- would make them dead.
--
-- ARGV[4]  to acquire: the waiter's timeout, ms; 0 not to wait

-- waitingLife is how long KEYS[5] outlives the last that said anything: far longer
-- than a line can take to notice that all in it have died.
local waitingLife = 3600000

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
    local ours = redis.call('zscore', KEYS[5], waiter)
    till = math.min(till, tonumber(ours or till))
    if till > now then
      return waiter, till - now
    end
    redis.call('lpop', queue)
    redis.call('zrem', ends, waiter)
    redis.call('zrem', KEYS[5], waiter)
  end
end

-- stand puts the owner at the end of the line, or keeps it in its place. Among
-- others its time goes on with the clock: how much of it is theirs is not known.
local function stand(queue, ends, owner, timeout)
  local now = now_ms()
  local till = now + timeout
  local own = redis.call('zscore', ends, owner)
  if not own then
    local last = redis.call('lindex', queue, -1)
    local theirs = last and redis.call('zscore', ends, last)
    till = math.max(now, tonumber(theirs or 0)) + timeout
  elseif redis.call('lindex', queue, 0) ~= owner then
    local alive = redis.call('zscore', KEYS[5], owner) -- since it asked last
    till = math.max(own + (alive and till - alive or 0), till)
  end
  if redis.call('zadd', ends, string.format('%.0f', till), owner) == 1 then
    redis.call('rpush', queue, owner)
  end
  redis.call('zadd', KEYS[5], string.format('%.0f', now + timeout), owner)
  redis.call('pexpire', KEYS[5], waitingLife)
end

local function taken(lock, owner)
  local held = redis.call('exists', lock) == 1
  local fence = held and granted(lock, owner)
  if fence then
    return nil, nil, fence
  end
  if held and redis.call('hexists', lock, 'mode') == 1 then
    return -1, 'FOREIGN the key holds a read-write lock'
  end
  local timeout = tonumber(ARGV[4])
  local waiter, alive = first(KEYS[3], KEYS[4])
  if not held and (not waiter or waiter == owner) then
    return nil
  end
  if timeout > 0 then
    stand(KEYS[3], KEYS[4], owner, timeout)
  end
  if held then
    return redis.call('pttl', lock)
  end
  return alive -- until the first in line, if it died, is passed over
end

local function take(lock, owner, lease, fence)
  if redis.call('zrem', KEYS[4], owner) == 1 then
    redis.call('lrem', KEYS[3], 1, owner)
    redis.call('zrem', KEYS[5], owner)
    for _, waiter in ipairs(redis.call('zrange', KEYS[4], 0, -1)) do
      redis.call('zincrby', KEYS[4], -ARGV[4], waiter)
    end
  end
  redis.call('hset', lock, owner, '1', 'ordergate_fence', 'f' .. fence)
  redis.call('pexpire', lock, lease)
end

-- Only the first in line is told: each waiter has a channel of its own.
local function announce(_, publish, channel)
  local waiter = first(KEYS[3], KEYS[4])
  if not waiter then
    return 0
  end
  return redis.call(publish, channel .. ':' .. waiter, '0')
end
