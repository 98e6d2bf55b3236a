-- Makes somebody a member, whose lease begins with the first renewal. One that was at
-- the same place before, and did not leave, may have had IDs that nobody else has.
--
-- ARGV[3]  the place
-- ARGV[4]  the member, "<place>#<which of those that were there>"
-- ARGV[5]  '1' if it was a member before: one at its place that has a lease, or has just
--          joined, is no predecessor, but runs beside it, and stays
-- Returns  {server's time in ms, era, its age in ms, whether somebody may have been there
--          before, the longest window of a reader in ms}
local place, before = ARGV[3] .. '#', '0'
for _, m in ipairs(redis.call('ZRANGE', members, 0, -1)) do
  local lease = tonumber(redis.call('ZSCORE', members, m))
  if m ~= ARGV[4] and string.sub(m, 1, #place) == place
    and not (ARGV[5] == '1' and (lease >= now or lease % 1 > 0)) then
    put('doubt', 'crash: the ordergate at ' .. ARGV[3] .. ' ended without taking its leave')
    redis.call('ZREM', members, m)
    before = '1'
  end
end
-- The half tells that it has just joined, from one whose lease ended. One that is a member
-- already asks once more, and had no answer: who was there before is gone since.
if redis.call('ZADD', members, 'NX', decimal(now - 1) .. '.5', ARGV[4]) == 0 then before = '1' end
count()
return {decimal(now), era, decimal(age()), before, longestWindow() or '0'}
