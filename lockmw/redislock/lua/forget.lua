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
  local below, upto, part = read_mark(redis.call('hget', marks, ARGV[i]))
  local value
  if upto and (holds or part == ARGV[4]) then
    value = string.format('%.0f', upto)
  else -- it is late, or what it has suspended was forgotten by hand: it may have settled anew
    value = string.format('%.0f', math.max(below, ARGV[5] + 1))
    if upto then
      value = string.format('%.0f %s %s', upto, part, value)
    end
  end
  redis.call('hset', marks, ARGV[i], value)
  lengthen(marks, ARGV[6])
end
