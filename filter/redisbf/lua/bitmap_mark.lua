-- Declares a bitmap whole, if it has been there since the load began and no other
-- load began later.
-- KEYS: the bitmap. ARGV: where the seal is in bytes, the seal of one that is
-- loading, that of one that is whole, the name of the load.
-- Returns 1, also when it was declared before, or 0.
local has = redis.call('GETRANGE', KEYS[1], ARGV[1], ARGV[1] + 15)
if has ~= ARGV[2] .. ARGV[4] and has ~= ARGV[3] .. ARGV[4] then
  return 0
end
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[3])
return 1
