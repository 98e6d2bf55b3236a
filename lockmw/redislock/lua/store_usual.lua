-- The usual release of an exclusive lock that stores an answer, before store.lua and all else
-- that release.lua is: the owner has the lock, there are no calls within its lease, no mark and no
-- answer is there, and memory is not full.
if ARGV[4] == ARGV[1] and redis.call('hget', KEYS[1], ARGV[1]) == '1' and redis.call('exists', marks_of(KEYS[1])) == 0 then
  local stored = redis.pcall('set', KEYS[3], ARGV[7] .. ' ' .. ARGV[5], 'px', ARGV[6], 'nx')
  if stored and stored.ok then
    redis.call('del', KEYS[1], KEYS[2])
    return 2 + redis.call(ARGV[2], ARGV[3], '0')
  end
end
