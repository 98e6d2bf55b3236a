-- Before a release: marks stored answers as undone by the call. Those of calls within its lease stay,
-- and so do those of later calls.
--
-- KEYS[2]  the record of the holders
-- KEYS[#KEYS]  the marks; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease; or a call within it
-- ARGV[5]  the fence of the lease
-- ARGV[6]  how long a mark lasts, ms
-- ARGV[7].. the names of the answers, or '*'
redis.call('hdel', KEYS[2], '') -- when memory is full, a script that has written may write
local marks, holds = KEYS[#KEYS], within(KEYS[1], ARGV[1], ARGV[4])
for i = 7, #ARGV do
  local below, may = read_mark(redis.call('hget', marks, ARGV[i]))
  local others, mine = without(may, ARGV[4])
  if holds and may[1] then
    below = may[1][1]
  elseif mine then
    below = math.max(below, mine)
  else -- it is late, or what it has suspended was forgotten by hand: it may have settled anew
    below = math.max(below, ARGV[5] + 1)
  end
  redis.call('hset', marks, ARGV[i], write_mark(below, others))
  lengthen(marks, ARGV[6])
end
