-- SET key owner NX PX, as services do it by hand. What the value cannot say, how
-- often its owner re-entered, stands beside it, in the hash KEYS[3]: {owner: how
-- often}. It ends a day after the last re-entry, should nobody leave it.

local key_type = 'string'

local function taken(lock, owner)
  local holder = redis.call('get', lock)
  if not holder or holder == owner then
    return nil
  end
  return redis.call('pttl', lock)
end

local function take(lock, owner, lease)
  redis.call('set', lock, owner, 'px', lease)
end

local function drop(lock, owner, record)
  if redis.call('get', lock) ~= owner then
    return nil
  end
  local count = KEYS[3]
  if (tonumber(redis.call('hget', count, owner)) or 0) > 0 then
    redis.call('hincrby', count, owner, -1)
    return false
  end
  redis.call('del', lock, record, count)
  return true
end

local function renew(lock, owner, ms)
  return redis.call('get', lock) == owner and redis.call('pexpire', lock, ms) == 1
end

local function enter(_, owner)
  redis.call('hincrby', KEYS[3], owner, 1)
  redis.call('pexpire', KEYS[3], ARGV[4])
end
