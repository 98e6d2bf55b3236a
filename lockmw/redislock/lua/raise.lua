-- Lets a server of a quorum know the fence that the quorum's grant was given.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fence
-- ARGV[1]  owner
-- ARGV[2]  the fence
-- ARGV[3]  how long it outlives the grant, ms; 0: for ever
-- returns  1 when done, 0 when the owner does not hold the lock here
if redis.call('exists', KEYS[1]) == 0 or taken(KEYS[1], ARGV[1]) then
  return 0
end
if tonumber(redis.call('get', KEYS[2]) or 0) < tonumber(ARGV[2]) then
  keep_fence(KEYS[2], ARGV[2], ARGV[3])
end
return 1
