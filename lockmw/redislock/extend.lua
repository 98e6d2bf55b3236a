-- Sets the end of a lease: to renew it, and to hold it for the last time.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  from now, ms
-- returns  1 when done, 0 when the owner does not hold the lock (any more)
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
return redis.call('pexpire', KEYS[1], ARGV[2])
