-- Before a release: stores the answer of the call. Both are one script, so there is no moment
-- in which the lock is free and the answer is not there. The first answer stays: a call that
-- lost its lease does not replace the answer of another. It stores its own even so, if there
-- is none: the call did what the answer reports. A release that is repeated stores nothing
-- once another call had the lock, which may have forgotten the answer.
--
-- KEYS[#KEYS - 1]  the last fence
-- KEYS[#KEYS]  the stored answer; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease
-- ARGV[5]  the answer
-- ARGV[6]  how long it is kept, ms
-- ARGV[7]  the fence of the lease, if the release is repeated
local newest = ARGV[7] and redis.call('get', KEYS[#KEYS - 1])
if not newest or newest == ARGV[7] then
  redis.call('set', KEYS[#KEYS], ARGV[5], 'px', ARGV[6], 'nx')
end
