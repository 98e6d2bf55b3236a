-- Appends what the follower of a table has read in its database's log, and stores its position behind
-- that. In one step: whoever reads the position from a server finds all entries before it there, and
-- learns from the same reply where the log ends.
--
-- KEYS[8]  the positions of the followers, a hash
-- ARGV[3]  the field of the follower
-- ARGV[4]  its new position, '' to leave the present one
-- ARGV[5], ARGV[6], ...  the entries, as those of append.lua
-- Returns  as append.lua, and the position, '' if there is none
for i = 5, #ARGV, 2 do put(ARGV[i], ARGV[i + 1]) end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[8], ARGV[3], ARGV[4]) end
return {decimal(seq), epoch, era, decimal(age()), longestWindow() or '0', redis.call('HGET', KEYS[8], ARGV[3]) or ''}
