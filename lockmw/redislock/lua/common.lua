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

-- What undoes settlements never changes their answers. It leaves marks in a hash beside the lock, and
-- an answer counts only if no mark is above it. Its fields are names of answers, or '*' for all of
-- them. A field has
--
--   "NUMBER"              every answer with a lower number is undone
--   "NUMBER PART BEFORE"  it may be, as a part of a lease is about to, or the outcome of that is
--                         unknown. BEFORE is the field without this, "0" for none. Of more than
--                         100 parts, the earliest are one, "*", which none gives back
--
-- and the field '' the greatest number so far. The number of an answer is the fence of its lease or,
-- if the lease is held while it is stored, no less than the greatest of a mark: what marked has ended
-- before, or is the call around it.
local function marks_of(lock)
  return beside(lock, 'ordergate_undone')
end

-- read_mark returns below which number answers are undone, and a list of {number, part}, the greatest
-- first: below which numbers they may be, and by which parts.
local function read_mark(value)
  local may = {}
  for number, part in string.gmatch(value or '', '(%d+) (%S+) ') do
    may[#may + 1] = {tonumber(number), part}
  end
  return tonumber(string.match(value or '', '(%d+)$') or 0), may
end

-- write_mark is the reverse.
local function write_mark(below, may)
  local text = ''
  for _, m in ipairs(may) do
    if m[1] > below then
      text = text .. string.format('%.0f %s ', m[1], m[2])
    end
  end
  return text .. string.format('%.0f', below)
end

-- without returns a list of {number, part} without a part, and the number of that, if it was there.
local function without(may, part)
  local others, number = {}, nil
  for _, m in ipairs(may) do
    if m[2] == part then
      number = m[1]
    else
      others[#others + 1] = m
    end
  end
  return others, number
end

-- may_too adds a part to a list of {number, part}.
local function may_too(may, number, part)
  local others = without(may, part)
  if #others > 99 then
    table.remove(others)
    others[#others][2] = '*'
  end
  table.insert(others, 1, {number, part})
  return others
end

-- number_of returns the number of a stored answer. One that was stored by hand has 0.
local function number_of(stored)
  return tonumber(string.match(stored, '^(%d+) ') or 0)
end

-- undone returns whether an answer with this number is undone, by the key that it has or would have,
-- and if it may be, below which number answers may be, else nil.
local function undone(lock, key, number)
  local marked = redis.call('hmget', marks_of(lock), '*', string.match(key, '^.*:ordergate_once:(.*)$'))
  local maybe
  for _, value in ipairs(marked) do
    local below, may = read_mark(value)
    if number < below then
      return true
    end
    local upto = may[1] and may[1][1] or 0
    if number < upto then
      maybe = math.max(maybe or 0, upto)
    end
  end
  return false, maybe
end

-- undoes reports whether a part of a lease may be about to undo the answer with this number.
local function undoes(lock, key, number, part)
  for _, value in ipairs(redis.call('hmget', marks_of(lock), '*', string.match(key, '^.*:ordergate_once:(.*)$'))) do
    local _, may = read_mark(value)
    local _, upto = without(may, part)
    if upto and number < upto then
      return true
    end
  end
  return false
end

-- greatest_mark returns the greatest number of a mark.
local function greatest_mark(lock)
  return tonumber(redis.call('hget', marks_of(lock), '') or 0)
end

-- next_mark returns the number of a new mark, which is above all answers so far, and remembers it.
local function next_mark(lock, fence, life)
  local number = math.max(tonumber(fence), greatest_mark(lock)) + 1
  redis.call('hset', marks_of(lock), '', string.format('%.0f', number))
  lengthen(marks_of(lock), life)
  return number
end

-- found_answer returns what an acquire answers in place of a grant: the answer in a key, with its
-- number, if it counts, or SUSPENDED. Of a suspended one, while the lock is taken, it returns nil: the
-- call waits for what may undo it.
local function found_answer(lock, key)
  local stored = redis.call('get', key)
  if not stored then
    return nil
  end
  local is_undone, may_be = undone(lock, key, number_of(stored))
  if is_undone or may_be and redis.call('exists', lock) == 1 then
    return nil
  end
  return may_be and 'SUSPENDED' or stored
end
