-- Takes several locks for one owner: all or none, or those before the first that is
-- taken.
--
-- KEYS     the locks, then the last fence of each
-- ARGV[1]  lease, ms
-- ARGV[2]  owner
-- ARGV[3]  how long a fence outlives its last grant, ms; 0: for ever
-- ARGV[4]  "some" for those before the first that is taken; "" for all or none
-- ARGV[5]  the number of locks; nothing: half of the keys
-- returns  the fences of the locks that were taken. An error that begins with
--          FOREIGN ends with the key that it is about.
local n, known = tonumber(ARGV[5] or #KEYS / 2), {}
local free = n
for i = 1, n do
  local is = redis.call('type', KEYS[i]).ok
  if is ~= 'none' and is ~= key_type then
    return redis.error_reply('FOREIGN the key holds a ' .. is .. ': ' .. KEYS[i])
  end
  local left, foreign, fence = taken(KEYS[i], ARGV[2])
  if foreign then
    return redis.error_reply(foreign .. ': ' .. KEYS[i])
  end
  if left and free == n then
    free = i - 1
  end
  known[i] = fence or 0
end
if free < n and ARGV[4] == '' then
  return {}
end
local fences = {}
for i = 1, free do
  fences[i] = known[i]
  if known[i] > 0 then
    last_for(KEYS[i], ARGV[2], tonumber(ARGV[1]))
  else
    local text
    fences[i], text = next_fence(KEYS[n + i], ARGV[3])
    take(KEYS[i], ARGV[2], ARGV[1], text)
  end
end
return fences
