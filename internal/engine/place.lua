-- Reads, or replaces, the mark up to which a set in Redis has a table. It is replaced
-- only if all is as it was when it was read: else the set may have lost what was added
-- since.
--
-- KEYS[1]  the marks, a hash
-- KEYS[2]  the state of the set, a hash
-- ARGV[1]  the source
-- ARGV[2], [3], [4]  history, generation and mark as they were read; none: it is only read
-- ARGV[5]  the mark that replaces that one
-- Returns  {name of the server's history, which is another one after each start and each
--          failover, or '' where it is not told; generation of the set; the mark, '' if
--          there is none}
-- Slot     both keys share the hash tag {<filter>}
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
local generation = redis.call('HGET', KEYS[2], 'generation') or '1'
local mark = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if #ARGV == 5 and history == ARGV[2] and generation == ARGV[3] and mark == ARGV[4] then
  mark = ARGV[5]
  redis.call('HSET', KEYS[1], ARGV[1], mark)
end
return {history, generation, mark}
