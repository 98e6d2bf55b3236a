-- Appends one ID to a filter's change log.
--
-- KEYS[1]  the log, a stream whose entry IDs are "<sequence number>-0"
-- KEYS[2]  the log's identity, a hash: epoch, seq
-- ARGV[1]  the ID
-- ARGV[2]  a nonce, unique to this append
-- Returns  {sequence number, epoch}
-- Slot     both keys share the hash tag {<filter>}
--
-- A log that was damaged is not made whole here. It keeps its gap, so that every
-- reader finds it, and takes the ID nevertheless: an ID refused is an ID lost.
local seq = tonumber(redis.call('HGET', KEYS[2], 'seq') or '0') or 0
local tail = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if tail then
  local last = tonumber(string.match(tail[1], '^%d+'))
  if last > seq then
    seq = last
  end
elseif redis.call('EXISTS', KEYS[2]) == 0 then
  -- Only a log that has neither entries nor identity is new. One that lost its
  -- identity gets none, which readers take for what it is.
  redis.call('HSET', KEYS[2], 'epoch', ARGV[2])
end
-- %.0f, since tostring turns 1e14 and more into an exponent.
local number = string.format('%.0f', seq + 1)
redis.call('XADD', KEYS[1], number .. '-0', 'id', ARGV[1], 'n', ARGV[2])
redis.call('HSET', KEYS[2], 'seq', number)
return {number, redis.call('HGET', KEYS[2], 'epoch') or ''}
