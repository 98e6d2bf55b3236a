-- The usual acquire of an exclusive lock, before all else that acquire.lua is: nobody has
-- the lock.
if redis.call('exists', KEYS[1]) == 0 then
  local fence, text = next_fence(KEYS[2], ARGV[3])
  take(KEYS[1], ARGV[2], ARGV[1], text)
  return fence
end
