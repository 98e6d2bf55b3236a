-- The beginning of every script.
--
-- A script is a library and one deed (acquire.lua, release.lua, ...). A library is
-- common.lua, what several kinds of lock share (owners.lua, shared.lua,
-- entries.lua), the verbs of one kind (hash.lua, text.lua, fair.lua, read.lua,
-- write.lua or semaphore.lua), and parts.lua, which uses those; for operators also
-- holders.lua. A later definition replaces an earlier one of the same name.
--
-- Redis gets only the definitions that a deed uses, and no comments. So that
-- script.go can tell, a library is nothing but definitions, each of which, and no
-- other line, begins with "local" unindented; and no text has two hyphens in a row.
--
-- The verbs are:
--
--   taken(lock, owner)         nil when the owner may have the lock, else the ms
--                              until that may change (-1: not known); the text of
--                              an error when the key holds no such lock; the fence
--                              when the owner has it already, since a client that
--                              lost the answer asks again
--   take(lock, owner, lease, fence)  makes the owner a holder for lease ms; the fence
--                              is a text
--   granted(lock, owner)       the fence of a holder that ordergate let in, nil of
--                              any other: what tells is written by take alone
--   nested(lock, owner)        nil when the owner holds nothing, else whether calls
--                              within its lease go on: parts.lua has those
--   mark(lock, owner, n)       writes down that they and the lease itself are n
--   set_end(lock, owner, ms)   has a holder's lease end in ms
--   ends_in(lock, owner)       the ms until then
--   remove(lock, owner, record)  ends a holder's lease: whether the lock is free
--   announce(lock, publish, channel)  wakes who waits; returns how many heard it
--
-- key_type is the type of a lock's key, for kinds of which several are taken at
-- once.
--
-- When its memory is full, Redis refuses a write that may need more, but not to a
-- script that has written before. So what keeps or ends a lease begins with a write
-- that needs none.
--
-- All keys of a script lie in the slot of KEYS[1], the lock.

-- Redis counts milliseconds; so does everything here but the fence.
local function now_ms()
  local t = redis.call('time')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- beside returns the name of a key that stands beside a lock.
local function beside(lock, suffix)
  if string.find(lock, '{', 1, true) then
    return lock .. ':' .. suffix
  end
  return '{' .. lock .. '}:' .. suffix
end

-- parts_of returns the name of what parts.lua keeps of an owner.
local function parts_of(lock, owner)
  return beside(lock, 'ordergate_entry:' .. owner)
end

-- keep_fence remembers a fence for life ms, '0' or nil for ever, and returns the last one.
local function keep_fence(key, fence, life)
  local last
  if not life or life == '0' then
    last = redis.call('set', key, fence, 'get')
  else
    last = redis.call('set', key, fence, 'px', life, 'get')
  end
  return last and tonumber(last) or 0
end

-- next_fence returns the number of a grant, greater than that of every earlier
-- one of the same lock, and remembers it. It returns it as a text too: to make that of a
-- number takes Redis half as long as a command.
--
-- The clock keeps it growing where the last number was lost (expiry, a failover
-- to a replica that missed it); the number, where the clock stepped back.
-- Microseconds since 1970 stay below 2^53, so a double holds them exactly, and
-- Redis writes them down as integers.
local function next_fence(key, life)
  local t = redis.call('time')
  local fence, text = t[1] * 1000000 + t[2], t[1] .. t[2]
  if #t[2] < 6 then
    text = string.format('%.0f', fence)
  end
  local last = keep_fence(key, text, life)
  if last >= fence then
    fence = last + 1
    text = string.format('%.0f', fence)
    keep_fence(key, text, life)
  end
  return fence, text
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

-- answer_in reads what stands in the place of a stored answer: its text, behind the fence of the
-- call that stored it, nil if there is none or it is forgotten; the fence of the call that has
-- forgotten or suspended it, as a text; and who has suspended it. See forget.lua and suspend.lua.
local function answer_in(stored)
  if type(stored) ~= 'string' then
    return nil
  end
  local forgotten = string.match(stored, '^forgotten (%d+)$')
  if forgotten then
    return nil, forgotten
  end
  local fence, by, text = string.match(stored, '^suspended (%d+) (%S+) (.*)$')
  return text or stored, fence, by
end
