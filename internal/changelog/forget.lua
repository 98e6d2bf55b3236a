-- Forgets readers that have not read the log since an entry was appended, for a creator that has
-- waited for the longest window and the margin since that was acknowledged: whatever window of theirs
-- there was began before, and is over. One that reads again is a reader again.
--
-- ARGV[3]  the sequence number of the entry
-- ARGV[4]  the era in which it was acknowledged
-- Returns  how many were forgotten
if ARGV[4] ~= era then return 0 end
local before = least()
local gone = redis.call('ZRANGEBYSCORE', reads, '-inf', '(' .. ARGV[3])
for _, name in ipairs(gone) do
  redis.call('ZREM', reads, name)
  redis.call('ZREM', readers, name)
end
if #gone > 0 then
  countReaders()
  tellLeast(before)
end
return #gone
