-- Before a release: forgets stored answers, since the call has undone what they report. It
-- forgets none once another call had the lock, whose answer it may be.
--
-- KEYS[ARGV[5] - 1]  the last fence
-- KEYS[ARGV[5]]..  the stored answers; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease
-- ARGV[5]  the index of the first
-- ARGV[6]  the fence of the lease
local newest = redis.call('get', KEYS[ARGV[5] - 1])
if not newest or newest == ARGV[6] then
  for i = tonumber(ARGV[5]), #KEYS do
    redis.call('del', KEYS[i])
  end
end
