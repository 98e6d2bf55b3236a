-- Before a release: stores the answer of the call. Both are one script, so there is no moment
-- in which the lock is free and the answer is not there. The first answer stays: a call that
-- lost its lease does not replace the answer of another. It stores its own even so, if there
-- is none: the call did what the answer reports. But what a later call has forgotten stays
-- forgotten, whenever and however often this script arrives. A call within one that undoes
-- replaces the answer that this one has suspended.
--
-- KEYS[2]  the record of the holders
-- KEYS[#KEYS]  the stored answer; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease; or a call within it
-- ARGV[5]  the answer, behind the fence and a space
-- ARGV[6]  how long it is kept, ms
-- ARGV[7]  the fence of the lease
local stored = redis.pcall('set', KEYS[#KEYS], ARGV[5], 'px', ARGV[6], 'nx')
if type(stored) == 'table' and stored.err then -- memory is full: a script that has written may write
  redis.call('hdel', KEYS[2], '')
  stored = redis.call('set', KEYS[#KEYS], ARGV[5], 'px', ARGV[6], 'nx')
end
if not stored then
  local text, fence = answer_in(redis.pcall('get', KEYS[#KEYS]))
  if fence == ARGV[7] or fence and not text and tonumber(fence) < tonumber(ARGV[7]) then
    redis.call('set', KEYS[#KEYS], ARGV[5], 'px', ARGV[6])
  end
end
