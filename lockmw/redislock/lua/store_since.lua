-- As store.lua, for answers that say nothing to later callers: the answer replaces that of an earlier
-- lease, and not that of a later one.
--
-- KEYS[2]  the record of the holders
-- KEYS[#KEYS]  the stored answer; the rest as in release.lua
-- ARGV[5]  the answer, behind the fence and a space
-- ARGV[6]  how long it is kept, ms
-- ARGV[7]  the fence of the lease
local stored = redis.pcall('get', KEYS[#KEYS])
local fence = type(stored) == 'string' and string.match(stored, '^(%d+) ')
if not fence or tonumber(fence) < tonumber(ARGV[7]) then
  stored = redis.pcall('set', KEYS[#KEYS], ARGV[5], 'px', ARGV[6])
  if stored.err then -- memory is full: a script that has written may write
    redis.call('hdel', KEYS[2], '')
    redis.call('set', KEYS[#KEYS], ARGV[5], 'px', ARGV[6])
  end
end
