-- Makes sure that a filter's change log has an identity, if it is new.
--
-- KEYS[1]  the log, a stream
-- KEYS[2]  the log's identity, a hash: epoch, seq
-- ARGV[1]  the epoch of a new log
-- Returns  the log's epoch, '' for a log that lost its identity
-- Slot     both keys share the hash tag {<filter>}
if redis.call('EXISTS', KEYS[1]) == 0 and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'seq', '0')
end
return redis.call('HGET', KEYS[2], 'epoch') or ''
