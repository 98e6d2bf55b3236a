-- Ends a membership, after the member's window was closed. Somebody who leaves in another era than that in which it saw last
-- that all it was acknowledged is in the log may have IDs that nobody else has.
--
-- ARGV[3]  the member
-- ARGV[4]  the era in which it saw that
-- ARGV[5]  the reader that it was
if redis.call('ZREM', members, ARGV[3]) == 1 then
  if ARGV[4] ~= era then
    put('doubt', 'crash: ' .. ARGV[3] .. ' took its leave just when Redis was restarted or failed over')
  end
  -- Whoever has yet to read that it left would call it back after a failover (recall.lua). It is named after its
  -- doubt, and only if it was a member: who is named has left nothing unsaid. A name with '#' is that of one
  -- start of one process, which does not join again. The latest is first, each between two line breaks.
  if string.find(ARGV[3], '#', 1, true) then
    local left = '\n' .. ARGV[3] .. (redis.call('HMGET', meta, 'left')[1] or '\n')
    redis.call('HSET', meta, 'left', string.sub(left, 1, 8192))
  end
end
count()
local before = least()
redis.call('ZREM', readers, ARGV[5])
redis.call('ZREM', reads, ARGV[5])
countReaders()
tellLeast(before)
return 1
