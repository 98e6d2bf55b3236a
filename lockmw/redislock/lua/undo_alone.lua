-- Marks what a call without the lock undoes, as suspend.lua, forget.lua and restore.lua do for one that
-- has it. A mark needs no lock: it is above all answers so far, and one script writes it. What the lock
-- adds is that no settlement runs meanwhile. Nothing shows whether one that was stored between the first
-- step and the last came before the undo or after it: its answer is suspended, unless the undo has failed.
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
local number, upto = tonumber(ARGV[3]), nil
if ARGV[1] ~= 'restore' then
  upto = next_mark(KEYS[1], last, ARGV[4])
end
if number == 0 then
  if not upto then
    return 0
  end
  number = upto
end
for i = 5, #ARGV do
  local below, may = read_mark(redis.call('hget', KEYS[3], ARGV[i]))
  may = without(may, ARGV[2])
  if upto then
    may = may_too(may, upto, ARGV[2])
  end
  if ARGV[1] == 'forget' then
    below = math.max(below, number)
  end
  redis.call('hset', KEYS[3], ARGV[i], write_mark(below, may))
end
lengthen(KEYS[3], ARGV[4])
return number
