-- Reads, or replaces, the mark up to which a set in Redis has a table. It is replaced
-- only if all is as it was when it was read: else the set may have lost what was added
-- since.
--
-- KEYS[1]  the marks, a hash
-- KEYS[2]  the state of the set, a hash
-- ARGV[1]  the set, and the table: the mark is that of one generation of the set
-- ARGV[2], [3], [4], [5]  history, generation, filling and mark as they were read; none: it
--          is only read
-- ARGV[6]  the mark that replaces that one
-- Returns  {name of the server's history, which is another one after each start and each
--          failover, or '' where it is not told; generation of the set; the name of its
--          last filling; the mark, '' if there is none}
-- Slot     both keys share the hash tag {<filter>}
local info = redis.pcall('INFO', 'replication')
local history = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
local generation = redis.call('HGET', KEYS[2], 'generation') or '0'
local filling = redis.call('HGET', KEYS[1], 'filling') or ''
local field = generation .. ':' .. ARGV[1]
local mark = redis.call('HGET', KEYS[1], field) or ''
if #ARGV == 6 and history == ARGV[2] and generation == ARGV[3] and filling == ARGV[4] and mark == ARGV[5] then
  mark = ARGV[6]
  redis.call('HSET', KEYS[1], field, mark)
end
return {history, generation, filling, mark}
