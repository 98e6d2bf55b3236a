-- The usual release of an exclusive lock that stores an answer, before store.lua and all else
-- that release.lua is: the owner has the lock, there are no calls within its lease, no answer
-- is there, and memory is not full.
if ARGV[4] == ARGV[1] and redis.call('hget', KEYS[1], ARGV[1]) == '1' then
  local stored = redis.pcall('set', KEYS[3], ARGV[5], 'px', ARGV[6], 'nx')
  if stored and stored.ok then
    redis.call('del', KEYS[1], KEYS[2])
    return 2 + redis.call(ARGV[2], ARGV[3], '0')
  end
end
