-- Reads a stored answer again that an acquire has found, before it is given.
--
-- KEYS[1]  the lock
-- KEYS[2]  the stored answer
-- ARGV[1]  1: replicas have to confirm it, as they do a grant. They confirm what was written, so this
--          writes what is there
-- returns  its text, if it counts, or SUSPENDED; else 1 while the lock is taken, which may store one, or 0
local found = found_answer(KEYS[1], KEYS[2])
if found and ARGV[1] == '1' then
  local left = redis.call('pttl', KEYS[2])
  if left > 0 then
    redis.call('pexpire', KEYS[2], left)
  end
end
return found or redis.call('exists', KEYS[1])
