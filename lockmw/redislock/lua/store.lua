-- Before a release: stores the answer of the call. Both are one script, so there is no moment
-- in which the lock is free and the answer is not there. The first answer stays: a call that
-- lost its lease does not replace the answer of another. It stores its own even so, if there
-- is none: the call did what the answer reports.
--
-- KEYS[#KEYS]  the stored answer; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease
-- ARGV[5]  the answer
-- ARGV[6]  how long it is kept, ms
redis.call('set', KEYS[#KEYS], ARGV[5], 'px', ARGV[6], 'nx')
