-- A hash {owner: 1, ordergate_fence: its fence behind an f}: what hash.lua, fair.lua and
-- write.lua have in common. Redisson counts in it how often the owner entered, and
-- has no other field but the mode of a read-write lock. Of ours it is 1, and one
-- more for each call within the lease.
--
-- What stands behind ordergate_fence must be no number: a service that takes the lock for
-- a read-write lock has Redisson's script count to each number in the hash, and Redis
-- answers nobody until then.

local function granted(lock, owner)
  local held = redis.call('hmget', lock, owner, 'ordergate_fence')
  return held[1] and held[2] and tonumber(string.sub(held[2], 2)) or nil
end

local function nested(lock, owner)
  local entered = redis.call('hget', lock, owner)
  if not entered then
    return nil
  end
  return entered ~= '1'
end

local function mark(lock, owner, n)
  redis.call('hset', lock, owner, n)
end

local function set_end(lock, _, ms)
  redis.call('pexpire', lock, ms)
end

local function remove(lock, _, record)
  redis.call('del', lock, record or lock)
  return true
end
