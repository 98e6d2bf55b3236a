-- Makes those members again that a log which was lost has forgotten, with a lease that
-- is over: one that is cut off may be telling clients of orders all the while, and
-- nobody else would know that it is there. The others renew theirs at once. One that left tells nobody any more.
--
-- ARGV[3], ...  members
local left = redis.call('HMGET', meta, 'left')[1] or ''
for i = 3, #ARGV do
  if not string.find(left, '\n' .. ARGV[i] .. '\n', 1, true) then redis.call('ZADD', members, 'NX', decimal(now - 1), ARGV[i]) end
end
count()
return 1
