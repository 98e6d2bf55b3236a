-- Redisson's RSemaphore, a string that counts the free permits, with leases
-- beside it that RSemaphore does not have: the permit of a holder that died
-- returns. Permits that Java takes have no lease.
--
-- KEYS[3]  a sorted set {owner: end of its lease, in ms since 1970}
-- KEYS[4]  the number of permits that we gave the semaphore; it does not exist
--          where Java did (trySetPermits)
-- ARGV[3]  to acquire: how long a semaphore of ours outlives the last question for
--          it, ms; 0: for ever
-- ARGV[4]  to acquire: the permits that the semaphore should have

local hour = 3600000

-- buried is how many that died a script forgets: others wait meanwhile.
local buried = 1000

-- bury returns the permits of holders that died.
local function bury(lock)
  local dead = redis.call('zrangebyscore', KEYS[3], '-inf', now_ms(), 'limit', 0, buried)
  if #dead == 0 then
    return
  end
  redis.call('zrem', KEYS[3], unpack(dead))
  redis.call('hdel', beside(lock, 'ordergate_holders'), unpack(dead))
  if redis.call('exists', lock) == 1 then
    redis.call('incrby', lock, #dead)
  end
end

-- provide makes the semaphore have as many permits as it should, for life ms, give or take
-- an hour. Its ID may be one that a client made up, so it does not stay for ever unless it
-- has to. Given is what KEYS[4] has, and left is how long the lock lasts.
local function provide(lock, permits, given, left, life)
  local same = tonumber(given) == permits
  if redis.call('exists', lock) == 0 then
    redis.call('set', lock, permits - redis.call('zcard', KEYS[3]))
    same = false
  elseif not given then
    return
  elseif not same then
    redis.call('incrby', lock, permits - given)
  end
  if not same then
    redis.call('set', KEYS[4], permits)
    left = 0
  end
  if life > 0 and left < life - hour then
    redis.call('pexpire', lock, life) -- first: without KEYS[4] it would be Java's
    redis.call('pexpire', KEYS[4], life)
    redis.call('pexpire', KEYS[3], life + hour) -- last: it tells which permits return
  elseif life == 0 and left > 0 then -- it had another life
    redis.call('persist', lock)
    redis.call('persist', KEYS[4])
    redis.call('persist', KEYS[3])
  end
end

local function granted(lock, owner)
  if not redis.call('zscore', KEYS[3], owner) then
    return nil
  end
  return noted(lock, owner)
end

local function taken(lock, owner)
  local free, given, left = redis.call('get', lock), redis.call('get', KEYS[4]), redis.call('pttl', lock)
  if free and (not tonumber(free) or left > 0 and not given) then
    return -1, 'FOREIGN the key holds a text that ends, as a lock in format string'
  end
  bury(lock)
  provide(lock, tonumber(ARGV[4]), given, left, tonumber(ARGV[3] or 0))
  local fence = granted(lock, owner)
  if fence or tonumber(redis.call('get', lock)) > 0 then
    return nil, nil, fence
  end
  local earliest = redis.call('zrange', KEYS[3], 0, 0, 'withscores')
  if not earliest[2] then
    return -1
  end
  return math.max(0, earliest[2] - now_ms())
end

local function take(lock, owner, lease, fence)
  local till = string.format('%.0f', now_ms() + lease)
  if redis.call('zadd', KEYS[3], till, owner) == 1 then
    redis.call('decr', lock)
  end
  local life = tonumber(ARGV[3] or 0) -- of a semaphore of Java's, permits have to return after it, too
  if life > 0 and redis.call('exists', KEYS[4]) == 1 then
    redis.call('pexpire', KEYS[3], life + hour)
  end
  note(lock, owner, lease, fence)
end

local function nested(lock, owner)
  bury(lock)
  if not redis.call('zscore', KEYS[3], owner) then
    return nil
  end
  return redis.call('exists', parts_of(lock, owner)) == 1
end

local function mark(_, _, _)
end

local function set_end(_, owner, ms)
  redis.call('zremrangebyscore', KEYS[3], '-inf', 0) -- nothing: a write that needs no memory
  redis.call('zadd', KEYS[3], string.format('%.0f', now_ms() + tonumber(ms)), owner)
  if redis.call('pttl', KEYS[3]) > 0 then
    lengthen(KEYS[3], ms)
  end
end

local function ends_in(_, owner)
  return (redis.call('zscore', KEYS[3], owner) or 0) - now_ms()
end

local function remove(lock, owner, record)
  redis.call('zrem', KEYS[3], owner)
  redis.call('hdel', record, owner)
  if redis.call('exists', lock) == 1 then -- or else it is provided anew
    redis.call('incr', lock)
  end
  return true
end

-- Redisson publishes the new number of free permits.
local function announce(lock, publish, channel)
  return redis.call(publish, channel, redis.call('get', lock) or '1')
end
