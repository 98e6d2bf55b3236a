-- Reads a lock at one moment, and changes nothing.
--
-- The keys and arguments are those of holders.lua.
-- returns  texts: type of the key, us since 1970, ms left, fence, bytes of a
--          string, mode of a read-write lock; a semaphore's counter, permits that
--          it was given, leases that have ended; how many hold the lock; how many
--          of them follow: owner, entered, ms left, record of each; how many are in
--          a fair lock's line; how many of them follow: owner, alive until in ms
--          since 1970 of each
local lock, shape, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local answer = {}
local function say(...)
  for _, value in ipairs({...}) do
    answer[#answer + 1] = type(value) == 'number' and string.format('%.0f', value) or value
  end
end

local is, now = redis.call('type', lock).ok, redis.call('time')
local count, list, mode = holders(lock, is, shape, most)
say(is, now[1] * 1000000 + now[2], redis.call('pttl', lock), redis.call('get', KEYS[#KEYS]) or '')
say(is == 'string' and redis.call('strlen', lock) or 0, mode)
if shape == 'semaphore' then
  say(is == 'string' and redis.call('getrange', lock, 0, 20) or '')
  say(redis.call('get', KEYS[4]) or '', redis.call('zcard', KEYS[3]) - count)
else
  say('', '', 0)
end
say(count, #list / 3)
for i = 1, #list, 3 do
  say(list[i], list[i + 1], list[i + 2], redis.call('hget', KEYS[2], list[i]) or '')
end
if shape == 'fair' then
  local line = redis.call('lrange', KEYS[3], 0, most - 1)
  say(redis.call('llen', KEYS[3]), #line)
  for _, waiter in ipairs(line) do
    say(waiter, redis.call('zscore', KEYS[4], waiter) or '0')
  end
else
  say(0, 0)
end
return answer
