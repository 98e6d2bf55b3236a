-- Ends a membership, after the member's window was closed. Somebody who leaves in another era than that in which it saw last
-- that all it was acknowledged is in the log may have IDs that nobody else has.
--
-- ARGV[3]  the member
-- ARGV[4]  the era in which it saw that
-- ARGV[5]  the reader that it was
if redis.call('ZREM', members, ARGV[3]) == 1 and ARGV[4] ~= era then
  put('doubt', 'crash: ' .. ARGV[3] .. ' took its leave just when Redis was restarted or failed over')
end
count()
local before = least()
redis.call('ZREM', readers, ARGV[5])
redis.call('ZREM', reads, ARGV[5])
countReaders()
tellLeast(before)
return 1
