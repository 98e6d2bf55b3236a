-- Before a release: stores the answer of the call. Both are one script, so there is no moment
-- in which the lock is free and the answer is not there. The first answer stays, unless it is undone,
-- or may be and this one is not: a call that lost its lease does not replace the answer of another.
-- It stores its own even so, if there is none: the call did what the answer reports. Whenever and
-- however often this script arrives, an answer below a mark does not count (common.lua): it is not
-- stored, as it might outlast the mark.
--
-- KEYS[2]  the record of the holders
-- KEYS[#KEYS]  the stored answer; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease; or a call within it
-- ARGV[5]  the answer
-- ARGV[6]  how long it is kept, ms
-- ARGV[7]  the fence of the lease
local key, number = KEYS[#KEYS], tonumber(ARGV[7])
if within(KEYS[1], ARGV[1], ARGV[4]) then
  number = math.max(number, greatest_mark(KEYS[1]))
end
local gone, mine = undone(KEYS[1], key, number)
local there = redis.pcall('get', key)
local free = not there
if type(there) == 'string' then
  local is_undone, may_be = undone(KEYS[1], key, number_of(there))
  free = is_undone or may_be and not mine
end
if free and not gone then
  redis.call('hdel', KEYS[2], '') -- when memory is full, a script that has written may write
  redis.call('set', key, string.format('%.0f', number) .. ' ' .. ARGV[5], 'px', ARGV[6])
  if mine then -- it is suspended to its end
    lengthen(marks_of(KEYS[1]), ARGV[6])
  end
  -- Nothing shows whether a call within the lease that has not ended undoes before this one acted or after
  -- it: unless that call fails, the answer stays suspended.
  local marks = marks_of(KEYS[1])
  for _, name in ipairs({'*', string.match(key, '^.*:ordergate_once:(.*)$')}) do
    local below, may = read_mark(redis.call('hget', marks, name))
    local more = may
    for _, m in ipairs(may) do
      if string.find(m[2], '=*', 1, true) and m[2] ~= ARGV[4] and within(KEYS[1], ARGV[1], m[2]) then
        more = may_too(more, next_mark(KEYS[1], ARGV[7], ARGV[6]), m[2] .. '.')
      end
    end
    if more ~= may then
      redis.call('hset', marks, name, write_mark(below, more))
    end
  end
end
