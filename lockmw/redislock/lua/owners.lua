-- A hash of owners, {owner: how often it entered}: what hash.lua, fair.lua and
-- write.lua have in common.

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

local function enter(lock, owner)
  redis.call('hincrby', lock, owner, 1)
end
