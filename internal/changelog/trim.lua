-- Removes entries that are in the current snapshot. It comes after that in the history
-- of the server, and all of it is in one slot: so whatever a failover or a restart leaves
-- of that history has the snapshot if it lacks the entries.
--
-- That it was trimmed is noted in the log's hash, at trimmed: without a snapshot it is
-- not to be taken for whole again.
--
-- KEYS[8]  the current snapshot, see adopt.lua
-- KEYS[9], ...  its chunks
-- ARGV[3]  its token
-- ARGV[4]  how many entries before its mark stay
-- ARGV[5]  how many to look at in one call
-- Returns  {how many were removed, why none may be or ''}
local known = redis.call('HMGET', KEYS[8], 'epoch', 'seq', 'nonce', 'token')
if known[4] ~= ARGV[3] or known[1] ~= epoch then return {0, 'there is another snapshot, or another log'} end
local entry = redis.call('XRANGE', log, known[2] .. '-0', known[2] .. '-0')[1]
if not entry or entry[2][4] ~= known[3] then return {0, 'the change log lost entry ' .. known[2]} end
for i = 9, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {0, 'chunk ' .. (i - 8) .. ' is gone'} end
end
-- An ordergate that knows of no snapshots would have a doubt for good.
for _, m in ipairs(redis.call('ZRANGE', members, 0, -1)) do
  if string.find(m, '#', 1, true) and string.sub(m, -1) ~= '+' then
    return {0, 'the ordergate at ' .. m .. ' knows of no snapshots in Redis'}
  end
end
local least = tonumber(known[2]) - tonumber(ARGV[4])
if least < 1 then return {0, ''} end
-- This first: with its memory full, a server refuses what adds, but not after what removes.
local removed = redis.call('XTRIM', log, 'MINID', '~', decimal(least) .. '-0', 'LIMIT', ARGV[5])
redis.call('HSET', meta, 'trimmed', known[2])
return {removed, ''}
