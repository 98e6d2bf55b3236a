-- The beginning of every script.
--
-- A script is a library and one deed (acquire.lua, release.lua, ...). A library is
-- common.lua, what several kinds of lock share (owners.lua, entries.lua), and the
-- verbs of one kind (hash.lua, text.lua, fair.lua, read.lua, write.lua or
-- semaphore.lua); for operators also holders.lua. A later definition replaces an
-- earlier one of the same name.
--
-- Redis gets only the definitions that a deed uses, and no comments. So that
-- script.go can tell, a library is nothing but definitions, each of which, and no
-- other line, begins with "local" unindented; and no text has two hyphens in a row.
--
-- The verbs are:
--
--   taken(lock, owner)         nil when the owner may have the lock, else the ms
--                              until that may change (-1: not known), and the
--                              text of an error when the key holds no such lock
--   take(lock, owner, lease)   makes the owner a holder for lease ms; to do it
--                              twice is to do it once
--   drop(lock, owner, record)  nil when the owner holds nothing, false when a
--                              re-entry still holds the lock, true when it is free
--   renew(lock, owner, ms)     false when the owner holds nothing
--   enter(lock, owner)         lets a holder in once more
--   ends_in(lock, owner)       the ms until the owner's lease ends
--   announce(lock, publish, channel)  wakes who waits; returns how many heard it
--
-- key_type is the type of a lock's key, for kinds of which several are taken at
-- once.
--
-- All keys of a script lie in the slot of KEYS[1], the lock.

-- Redis counts milliseconds; so does everything here but the fence.
local function now_ms()
  local t = redis.call('time')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- next_fence returns the number of a grant, greater than that of every earlier
-- one of the same lock, and remembers it for life ms, at the least for half of it;
-- or for ever, where it has no end, since Redisson began it: its next number is
-- this one and 1.
--
-- The clock keeps it growing where the last number was lost (expiry, a failover
-- to a replica that missed it); the number, where the clock stepped back.
-- Microseconds since 1970 stay below 2^53, so a double holds them exactly, and
-- Redis writes them down as integers.
local function next_fence(key, life)
  local t = redis.call('time')
  local fence = t[1] * 1000000 + t[2]
  local last = redis.call('set', key, fence, 'keepttl', 'get')
  if not last then
    redis.call('pexpire', key, life)
    return fence
  end
  last = tonumber(last) or 0
  if last >= fence then
    fence = last + 1
    redis.call('set', key, fence, 'keepttl')
  end
  local left = redis.call('pttl', key)
  if left ~= -1 and left < life / 2 then
    redis.call('pexpire', key, life)
  end
  return fence
end

-- lengthen sets the end of a key to ms from now unless it ends later.
local function lengthen(key, ms)
  if redis.call('pttl', key) < tonumber(ms) then
    redis.call('pexpire', key, ms)
  end
end

local function ends_in(lock, _)
  return redis.call('pttl', lock)
end

local function announce(_, publish, channel)
  return redis.call(publish, channel, '0')
end
