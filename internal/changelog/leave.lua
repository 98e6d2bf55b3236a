-- Ends a membership. Somebody who leaves in another era than that in which it saw last
-- that all it was acknowledged is in the log may have IDs that nobody else has.
--
-- ARGV[3]  the member
-- ARGV[4]  the era in which it saw that
if redis.call('ZREM', members, ARGV[3]) == 1 and ARGV[4] ~= era then
  put('doubt', 'crash: ' .. ARGV[3] .. ' took its leave just when Redis was restarted or failed over')
end
count()
return 1
