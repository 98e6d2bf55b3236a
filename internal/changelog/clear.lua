-- Appends that doubts up to an entry are cleared, if the log has that entry still. After a
-- failover there may be another in its place: a doubt that nobody who cleared knew of.
--
-- ARGV[3], ARGV[4], ARGV[5]  the entry: epoch, sequence number (0: before the first), nonce
-- ARGV[6]  the value of the entry that clears
-- Returns  as append.lua; an error if the log is not what it was
local entry = redis.call('XRANGE', log, ARGV[4] .. '-0', ARGV[4] .. '-0')[1]
if epoch ~= ARGV[3] or ARGV[4] ~= '0' and (not entry or entry[2][4] ~= ARGV[5]) then
  error('the change log lost entry ' .. ARGV[4] .. ', up to which doubts were to be cleared', 0)
end
put('doubt', ARGV[6])
return {decimal(seq), epoch, era, decimal(age()), longestWindow() or '0'}
