-- Makes a snapshot the current one: whoever reads the log from its beginning may take
-- it for all entries up to its mark. Everything that it consists of is looked for here,
-- on the server that the log is on: chunks that another server took are in no failover's
-- way then.
--
-- KEYS[8]  the current snapshot, a hash: epoch, seq and nonce are its mark, token names
--          its chunks, of which there are as many as chunks says, with so many bytes
-- KEYS[9], ...  its chunks, and then those of the one before
-- ARGV[3], ARGV[4], ARGV[5]  its mark: epoch, sequence number, nonce of the entry there
-- ARGV[6]  its token
-- ARGV[7]  how many chunks it has
-- ARGV[8]  how many bytes
-- ARGV[9]  the token of the one before, '' if there is none
-- Returns  why it was not done, '' if it was
local current, chunks = KEYS[8], tonumber(ARGV[7])
local known = redis.call('HMGET', current, 'epoch', 'seq', 'token')
if (known[3] or '') ~= ARGV[9] then return 'another one was quicker' end
if epoch ~= ARGV[3] then return 'the change log is another one' end
if known[1] == epoch and tonumber(known[2]) > tonumber(ARGV[4]) then return 'there is a later one' end
local entry = redis.call('XRANGE', log, ARGV[4] .. '-0', ARGV[4] .. '-0')[1]
if not entry or entry[2][4] ~= ARGV[5] then return 'the change log lost entry ' .. ARGV[4] end
for i = 1, chunks do
  if redis.call('EXISTS', KEYS[8 + i]) == 0 then return 'chunk ' .. i .. ' is gone' end
end
for i = 1, chunks do redis.call('PERSIST', KEYS[8 + i]) end
redis.call('HSET', current, 'epoch', epoch, 'seq', ARGV[4], 'nonce', ARGV[5],
  'token', ARGV[6], 'chunks', ARGV[7], 'bytes', ARGV[8])
for i = 9 + chunks, #KEYS do redis.call('UNLINK', KEYS[i]) end
return ''
