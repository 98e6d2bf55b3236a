-- Suspends stored answers, for a call that has the lock and is about to undo what they report: they
-- are given to no call from now on. The release of the call forgets them, or gives them back. If its
-- outcome is unknown, or it dies, they stay suspended when the lock is free, and no call acts a
-- second time. No release gives back an answer that several calls have suspended: the outcome of
-- one may be unknown. A script that arrives late, after the release, does nothing.
--
-- KEYS[1]   the lock
-- KEYS[2].. the stored answers
-- ARGV[1]   the fence of the lease
-- ARGV[2]   its owner
-- ARGV[3]   the part of the lease that is this call
-- returns   0 when the owner does not hold the lock, else 1
if nested(KEYS[1], ARGV[2]) == nil then
  return 0
end
for i = 2, #KEYS do
  local text, _, by = answer_in(redis.pcall('get', KEYS[i]))
  local who = ARGV[3]
  if by and by ~= who then
    who = '*'
  end
  if text and tonumber(string.match(text, '^(%d+) ') or 0) <= tonumber(ARGV[1]) then
    redis.call('set', KEYS[i], 'suspended ' .. ARGV[1] .. ' ' .. who .. ' ' .. text, 'keepttl')
  end
end
return 1
