-- Takes several locks for one owner, all or none.
--
-- KEYS     the locks, then the last fence of each
-- ARGV[1]  lease, ms
-- ARGV[2]  owner
-- ARGV[3]  how long a fence outlives its last grant, ms
-- returns  the fences when granted; else {-i, left}: the i-th lock is taken, and
--          left is what acquire.lua would answer. An error that begins with FOREIGN
--          ends with the key that it is about.
local n = #KEYS / 2
for i = 1, n do
  local is = redis.call('type', KEYS[i]).ok
  if is ~= 'none' and is ~= key_type then
    return redis.error_reply('FOREIGN the key holds a ' .. is .. ': ' .. KEYS[i])
  end
  local left, foreign = taken(KEYS[i], ARGV[2])
  if foreign then
    return redis.error_reply(foreign .. ': ' .. KEYS[i])
  end
  if left then
    return {-i, -2 - left}
  end
end
local fences = {}
for i = 1, n do
  fences[i] = next_fence(KEYS[n + i], ARGV[3])
  take(KEYS[i], ARGV[2], ARGV[1])
end
return fences
