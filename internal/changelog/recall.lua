-- Makes those members again that a log which was lost has forgotten, with a lease that
-- is over: one that is cut off may be telling clients of orders all the while, and
-- nobody else would know that it is there. The others renew theirs at once.
--
-- ARGV[3], ...  members
for i = 3, #ARGV do redis.call('ZADD', members, 'NX', decimal(now - 1), ARGV[i]) end
count()
return 1
