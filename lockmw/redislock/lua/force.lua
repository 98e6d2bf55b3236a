-- Takes a lock away from those who were seen to hold it, and wakes who waits. The
-- fence stays, so that the next is greater.
--
-- The keys and the first two arguments are those of holders.lua.
-- ARGV[3]  publish or, on a cluster, spublish
-- ARGV[4]  the channel
-- ARGV[5]  the fence that was seen, or 0
-- ARGV[6]..  the holders that were seen; of a semaphore, the one whose permit
--          returns
-- returns  -1 when another holds it by now, or nobody does; else how many heard
local lock, record, shape, most = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if shape == 'semaphore' then
  -- Others' permits come and go meanwhile, and the fence with them.
  if nested(lock, ARGV[6]) == nil then
    return -1
  end
  redis.call('del', parts_of(lock, ARGV[6]))
  remove(lock, ARGV[6], record)
  return announce(lock, ARGV[3], ARGV[4])
end
local fence = tonumber(redis.call('get', KEYS[#KEYS]) or 0) or 0
local count, list = holders(lock, redis.call('type', lock).ok, shape, most)
if count > most or fence ~= tonumber(ARGV[5]) then
  return -1
end
local seen, still = {}, 0
for i = 6, #ARGV do
  seen[ARGV[i]] = true
end
for i = 1, #list, 3 do
  if seen[list[i]] then
    still = still + 1
  elseif list[i + 2] ~= -2 then -- a reader that died holds nothing
    return -1
  end
end
if still == 0 then
  return -1
end
if shape == 'rw' then
  for i = 1, #list, 3 do
    for n = 1, math.min(tonumber(list[i + 1]) or 0, most) do
      redis.call('del', timeouts(lock, list[i]) .. ':' .. n)
    end
  end
end
for i = 1, #list, 3 do
  redis.call('del', parts_of(lock, list[i]))
end
redis.call('del', lock, record)
if shape == 'text' then
  redis.call('del', beside(lock, 'ordergate_grant'))
end
return announce(lock, ARGV[3], ARGV[4])
