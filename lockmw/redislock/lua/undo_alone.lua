-- Marks what a call without the lock undoes, as suspend.lua, forget.lua and restore.lua do for one that
-- has it. A mark needs no lock: it is above all answers so far, and one script writes it. What the lock
-- adds is that no settlement runs meanwhile. So a call that has undone forgets the answers below its first
-- mark alone. What was stored since then, or without such a mark, is suspended, unless the undo has failed:
-- nothing shows whether it came before the undo or after it. A step counts once, and the first one only
-- before the last one: it may arrive late, or again, after a later settlement.
--
-- KEYS[1]   the lock
-- KEYS[2]   its last fence
-- KEYS[3]   its marks
-- KEYS[4]   the last step of the call
-- ARGV[1]   "suspend", before the call; "forget" if it has undone, "restore" if it has not, "keep" if that
--           is unknown
-- ARGV[2]   the call: a name that is used once
-- ARGV[3]   how long a mark lasts, ms
-- ARGV[4]..  the names of the answers, or '*'
-- returns   0 if the lock has no last fence and no marks, so no answer is stored, else 1
local ended, last = redis.call('get', KEYS[4]), redis.call('get', KEYS[2])
if ended and (ARGV[1] == 'suspend' or ARGV[1] == ended) then
  return 1
end
if ARGV[1] ~= 'suspend' then
  redis.call('set', KEYS[4], ARGV[1], 'px', 3600000) -- far longer than a command can be late
end
if not last and redis.call('exists', KEYS[3]) == 0 then
  return 0
end
local number = ARGV[1] ~= 'restore' and next_mark(KEYS[1], last or 0, ARGV[3])
for i = 4, #ARGV do
  local below, may = read_mark(redis.call('hget', KEYS[3], ARGV[i]))
  local others, mine = without(may, ARGV[2])
  if ARGV[1] == 'suspend' or ARGV[1] == 'keep' then
    others = may_too(may, number, ARGV[2])
  elseif ARGV[1] == 'forget' then
    below = math.max(below, mine or 0)
    others = may_too(others, number, ARGV[2] .. '.') -- a name of its own: what it has suspended first is done
  end
  redis.call('hset', KEYS[3], ARGV[i], write_mark(below, others))
end
lengthen(KEYS[3], ARGV[3])
return 1
