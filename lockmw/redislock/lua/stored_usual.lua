-- The usual acquire of an exclusive lock with stored answers, before all else: nobody has
-- the lock, and no answer is stored. One command finds both out.
--
-- KEYS[#KEYS]  the stored answer; the rest as in acquire.lua
if redis.call('exists', KEYS[1], KEYS[#KEYS]) == 0 then
  local fence, text = next_fence(KEYS[2], ARGV[3])
  take(KEYS[1], ARGV[2], ARGV[1], text)
  return fence
end
