-- Says that a bitmap is not whole, and names the load that makes it so.
-- KEYS: the bitmap. ARGV: where the seal is in bytes, the seal of one that is
-- loading, that of one that is whole, the name of the load, of 8 bytes.
-- Returns 1, or 0 if the bitmap is missing or another's.
local seal = redis.call('GETRANGE', KEYS[1], ARGV[1], ARGV[1] + 7)
if seal ~= ARGV[2] and seal ~= ARGV[3] then
  return 0
end
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2] .. ARGV[4])
return 1
