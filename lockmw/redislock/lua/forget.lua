-- Before a release: marks stored answers as undone by the call, below the mark that it began with. Those of
-- calls within its lease stay, those of later calls, and what others have suspended since then.
--
-- KEYS[2]  the record of the holders
-- KEYS[#KEYS]  the marks; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease; or a call within it
-- ARGV[5]  the fence of the lease
-- ARGV[6]  how long a mark lasts, ms
-- ARGV[7].. the names of the answers, or '*'
redis.call('hdel', KEYS[2], '') -- when memory is full, a script that has written may write
local marks = KEYS[#KEYS]
for i = 7, #ARGV do
  local below, may = read_mark(redis.call('hget', marks, ARGV[i]))
  local others, mine = without(may, ARGV[4])
  if not mine then -- it is late, or what it has suspended was forgotten by hand: it may have settled anew
    mine = ARGV[5] + 1
  end
  below = math.max(below, mine)
  redis.call('hset', marks, ARGV[i], write_mark(below, others))
  lengthen(marks, ARGV[6])
end
