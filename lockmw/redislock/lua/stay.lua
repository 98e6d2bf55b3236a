-- Sets the end of a lease for a re-entry of it: to renew it, and to hold it for the
-- last time. The lease is not the re-entry's own, so it never ends sooner for it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the record of its holders
-- KEYS[3]..  of the kind
-- the last key  the entry
-- ARGV[1]  owner
-- ARGV[2]  from now, ms
-- ARGV[3]  1 for the last time: the entry is renewed no more, and never left
-- returns  1 when done, 0 when the entry was given up, or the owner does not hold
--          the lock (any more)
if redis.call('exists', KEYS[#KEYS]) == 0 then
  return 0 -- a renewal that comes late
end
if not renew(KEYS[1], ARGV[1], math.max(tonumber(ARGV[2]), ends_in(KEYS[1], ARGV[1]))) then
  return 0
end
if ARGV[3] == '1' then
  redis.call('del', KEYS[#KEYS])
end
lengthen(KEYS[2], ARGV[2])
return 1
