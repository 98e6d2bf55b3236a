-- Sets the count of a latch, as RCountDownLatch.trySetCount does, or opens it.
--
-- KEYS[1]  the latch
-- ARGV[1]  the count; 0 opens the latch
-- ARGV[2]  the command that publishes
-- ARGV[3]  the channel of the latch; "": none
-- ARGV[4]  "replace" sets it also if there is a latch
-- returns  1, and the number of subscriptions that got the message; 0 and 0 if there is a
--          latch. An error if the key holds something else.
local is = redis.call('type', KEYS[1]).ok
if is ~= 'none' and is ~= 'string' then
  return redis.error_reply('WRONGTYPE the key holds a ' .. is)
end
if is == 'string' and not string.find(redis.call('get', KEYS[1]), '^-?%d+$') then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
if is ~= 'none' and ARGV[4] ~= 'replace' then
  return {0, 0}
end
local message, heard = '1', 0
if ARGV[1] == '0' then
  redis.call('del', KEYS[1])
  message = '0'
else
  redis.call('set', KEYS[1], ARGV[1])
end
if ARGV[3] ~= '' then
  heard = redis.call(ARGV[2], ARGV[3], message)
end
return {1, heard}
