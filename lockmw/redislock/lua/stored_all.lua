-- Before an acquire of several locks: returns the first stored answer of an earlier call for
-- one of them, and takes nothing. See stored.lua.
--
-- KEYS     the locks, the last fence of each, the stored answer of each
-- ARGV[5]  the number of locks
-- returns  the text of the first stored answer, if there is one
for i = 2 * ARGV[5] + 1, #KEYS do
  local stored = redis.call('get', KEYS[i])
  local text, fence = answer_in(stored)
  if text and not (fence and fence == redis.call('get', KEYS[i - ARGV[5]]) and redis.call('exists', KEYS[i - 2 * ARGV[5]]) == 1) then
    return stored
  end
end
