-- Reads a page of a filter's change log: identity, tail and entries in one atomic
-- step, so that nothing can be deleted between a look at the one and the other.
-- It writes nothing, but is run by EVALSHA all the same: EVALSHA_RO may be sent
-- to a replica, and a replica's tail proves nothing.
--
-- KEYS[1]  the log, a stream whose entry IDs are "<sequence number>-0"
-- KEYS[2]  the log's identity, a hash: epoch, seq
-- ARGV[1]  sequence number of the entry to begin with, 0 for the beginning
-- ARGV[2]  how many entries at most
-- Returns  {epoch or '', sequence number of the tail or '', entries}
-- Slot     both keys share the hash tag {<filter>}
return {
  redis.call('HGET', KEYS[2], 'epoch') or '',
  redis.call('HGET', KEYS[2], 'seq') or '',
  redis.call('XRANGE', KEYS[1], ARGV[1] .. '-0', '+', 'COUNT', ARGV[2]),
}
