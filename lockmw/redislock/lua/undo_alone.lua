-- Marks what a call without the lock undoes, as suspend.lua, forget.lua and restore.lua do for one that
-- has it. A mark needs no lock: it is above all answers so far, and one script writes it. What the lock
-- adds is that no settlement runs meanwhile. The answer of one that runs counts, since nothing shows
-- which of both came first.
--
-- KEYS[1]   the lock
-- KEYS[2]   its last fence
-- KEYS[3]   its marks
-- ARGV[1]   "suspend", before the call; "forget" if it has undone, "restore" if it has not
-- ARGV[2]   the call: a name that is used once
-- ARGV[3]   the number that "suspend" has returned; 0: it is not known
-- ARGV[4]   how long a mark lasts, ms
-- ARGV[5]..  the names of the answers, or '*'
-- returns   the number of the mark; 0: the lock was never granted, so no answer is stored
local last = redis.call('get', KEYS[2])
if not last then
  return 0
end
local number = tonumber(ARGV[3])
if number == 0 then
  if ARGV[1] == 'restore' then
    return 0
  end
  number = next_mark(KEYS[1], last, ARGV[4])
end
for i = 5, #ARGV do
  local below, may = read_mark(redis.call('hget', KEYS[3], ARGV[i]))
  if ARGV[1] == 'suspend' then
    may = may_too(may, number, ARGV[2])
  else
    may = without(may, ARGV[2])
  end
  if ARGV[1] == 'forget' then
    below = math.max(below, number)
  end
  redis.call('hset', KEYS[3], ARGV[i], write_mark(below, may))
end
lengthen(KEYS[3], ARGV[4])
return number
