-- Takes several locks for one owner, all or none.
--
-- KEYS     the locks, then the last fence of each
-- ARGV[1]  lease, ms
-- ARGV[2]  owner
-- ARGV[3]  how long a fence outlives its last grant, ms; 0: for ever
-- returns  the fences when granted; else {-i, left}: the i-th lock is taken, and
--          left is what acquire.lua would answer. An error that begins with FOREIGN
--          ends with the key that it is about.
local n, fences = #KEYS / 2, {}
for i = 1, n do
  local is = redis.call('type', KEYS[i]).ok
  if is ~= 'none' and is ~= key_type then
    return redis.error_reply('FOREIGN the key holds a ' .. is .. ': ' .. KEYS[i])
  end
  local left, foreign, fence = taken(KEYS[i], ARGV[2])
  if foreign then
    return redis.error_reply(foreign .. ': ' .. KEYS[i])
  end
  if left then
    return {-i, -2 - left}
  end
  fences[i] = fence or 0
end
for i = 1, n do
  if fences[i] == 0 then
    fences[i] = next_fence(KEYS[n + i], ARGV[3])
    take(KEYS[i], ARGV[2], ARGV[1], fences[i])
  end
end
return fences
