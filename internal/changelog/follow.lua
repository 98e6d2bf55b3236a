-- Appends what the follower of a table has read in its database's log, and moves its place behind
-- that. In one step: a server that has the place has all entries before it. The place moves only from
-- the one that the follower stored last: after a failover, or beside another follower, it is another.
--
-- KEYS[8]  the places of the followers, a hash
-- ARGV[3]  the field of the follower
-- ARGV[4]  'move' to move the place, 'read' to leave it
-- ARGV[5], ARGV[6]  the present place and the next one, '' for none
-- ARGV[7], ARGV[8], ...  the entries, as those of append.lua
-- Returns  as append.lua, and the place, '' if there is none
if ARGV[4] == 'move' then
  local place = redis.call('HGET', KEYS[8], ARGV[3]) or ''
  if place ~= ARGV[5] and place ~= ARGV[6] then -- the next one: the client repeats the call
    return redis.error_reply('PLACE another place of the table is stored')
  end
  for i = 7, #ARGV, 2 do put(ARGV[i], ARGV[i + 1]) end
  if ARGV[6] == '' then redis.call('HDEL', KEYS[8], ARGV[3]) else redis.call('HSET', KEYS[8], ARGV[3], ARGV[6]) end
end
return {decimal(seq), epoch, era, decimal(age()), longestWindow() or '0', redis.call('HGET', KEYS[8], ARGV[3]) or ''}
