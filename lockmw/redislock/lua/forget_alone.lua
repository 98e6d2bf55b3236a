-- Forgets stored answers without the lock, for an operator. The release of an earlier call that
-- is repeated stores none afterwards: there is a newer fence.
--
-- KEYS[1]  the last fence
-- KEYS[2]..  the stored answers
-- returns  how many there were
if redis.call('exists', KEYS[1]) == 1 then
  redis.call('incr', KEYS[1])
end
return redis.call('del', unpack(KEYS, 2))
