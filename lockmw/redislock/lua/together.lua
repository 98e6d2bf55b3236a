-- Behind store.lua, for an answer that is kept for more than a day, the least life of a mark, or that may
-- end after the last fence: the marks last as long as the answer. So whatever undoes it finds that an
-- answer may be there, and no mark ends before an answer that it withholds.
--
-- KEYS[#KEYS-1]  the last fence; the rest as in store.lua
local left = redis.call('pttl', KEYS[#KEYS - 1])
if tonumber(ARGV[6]) > 86400000 or left ~= -1 and left <= tonumber(ARGV[6]) then
  redis.call('hset', marks_of(KEYS[1]), '', string.format('%.0f', math.max(ARGV[7], greatest_mark(KEYS[1]))))
  lengthen(marks_of(KEYS[1]), ARGV[6])
end
