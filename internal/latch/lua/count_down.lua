-- Counts a latch down, as RCountDownLatch.countDown does.
--
-- KEYS[1]  the latch
-- ARGV[1]  the count that was read before
-- ARGV[2]  the command that publishes
-- ARGV[3]  the channel of the latch; "": none
-- returns  1, and the number of subscriptions that got the message; 0 and 0 if the latch has
--          another count than the one read before.
local count = redis.call('get', KEYS[1])
if count ~= ARGV[1] then
  return {0, 0}
end
local left, heard = redis.call('decr', KEYS[1]), 0
if left <= 0 then
  redis.call('del', KEYS[1])
end
if left == 0 and ARGV[3] ~= '' then
  heard = redis.call(ARGV[2], ARGV[3], '0')
end
return {1, heard}
