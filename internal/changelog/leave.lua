-- Ends a membership.
--
-- ARGV[3]  the member
redis.call('ZREM', members, ARGV[3])
count()
return 1
