-- Redisson's RLock and RFencedLock: a hash {owner: how often it entered}.

local shape = 'hash'

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

local function left(lock, _)
  return redis.call('pttl', lock)
end

local function announce(_, publish, channel)
  return redis.call(publish, channel, '0')
end

local function enter(lock, owner)
  redis.call('hincrby', lock, owner, 1)
end
