-- Reads a page of a filter's change log: identity, tail and entries in one atomic
-- step, so that nothing can be deleted between a look at the one and the other.
--
-- KEYS[1]  the log, a stream whose entry IDs are "<sequence number>-0"
-- KEYS[2]  the log's identity, a hash: epoch, seq
-- ARGV[1]  sequence number of the entry to begin with, 0 for the beginning
-- ARGV[2]  how many entries at most
-- Returns  {epoch or '', sequence number of the tail or '', entries}
-- Slot     both keys share the hash tag {<filter>}
--
-- A replica's tail proves nothing, nor does that of a master that was cut off and
-- replaced. So this asks to write, which the first refuses always, and the second
-- where min-replicas-to-write is set. The identity never expires: nothing changes,
-- and there is nothing to send to replicas.
redis.call('PERSIST', KEYS[2])
return {
  redis.call('HGET', KEYS[2], 'epoch') or '',
  redis.call('HGET', KEYS[2], 'seq') or '',
  redis.call('XRANGE', KEYS[1], ARGV[1] .. '-0', '+', 'COUNT', ARGV[2]),
}
