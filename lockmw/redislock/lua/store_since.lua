-- As store.lua, for answers that say nothing to later callers. The answer stands behind the time at
-- which its call ended, microseconds, and not behind a fence. It replaces an answer from before the
-- lease, and none from after its beginning: a fence is the time of a grant.
--
-- KEYS[2]  the record of the holders
-- KEYS[#KEYS]  the stored answer; the rest as in release.lua
-- ARGV[5]  the answer
-- ARGV[6]  how long it is kept, ms
-- ARGV[7]  the fence of the lease
-- ARGV[8]  how long ago the call ended, microseconds
local stored = redis.pcall('get', KEYS[#KEYS])
local ended = type(stored) == 'string' and tonumber(string.match(stored, '^(%d+) '))
if not ended or ended < tonumber(ARGV[7]) then
  local t = redis.call('time')
  local answer = string.format('%.0f', t[1] * 1000000 + t[2] - ARGV[8]) .. ' ' .. ARGV[5]
  stored = redis.pcall('set', KEYS[#KEYS], answer, 'px', ARGV[6])
  if stored.err then -- memory is full: a script that has written may write
    redis.call('hdel', KEYS[2], '')
    redis.call('set', KEYS[#KEYS], answer, 'px', ARGV[6])
  end
end
