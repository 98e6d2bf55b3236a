-- Suspends stored answers, for a call that has the lock and is about to undo what they report, whether
-- there are any or not: one may arrive late. They are given to no call from now on. The release of the
-- call forgets them, or gives them back. If its outcome is unknown, or it dies, they stay suspended
-- when the lock is free, and no call acts a second time. Of an answer that several calls have suspended,
-- each one gives back its part: the outcome of another may be unknown. A script that arrives after the release
-- does nothing.
--
-- KEYS[1]   the lock
-- KEYS[2]   its marks
-- ARGV[1]   the owner of the lease
-- ARGV[2]   the part of it that is this call
-- ARGV[3]   the fence of the lease
-- ARGV[4]   how long a mark lasts, ms
-- ARGV[5].. the names of the answers, or '*'
-- returns   0 when the call does not hold the lock, else 1
if not within(KEYS[1], ARGV[1], ARGV[2]) then
  return 0
end
local number = next_mark(KEYS[1], ARGV[3], ARGV[4])
for i = 5, #ARGV do
  local below, may = read_mark(redis.call('hget', KEYS[2], ARGV[i]))
  redis.call('hset', KEYS[2], ARGV[i], write_mark(below, may_too(may, number, ARGV[2])))
end
return 1
