-- Sets bits of a bitmap that has one of two seals.
-- KEYS: the bitmap. ARGV: where the seal is in bytes, the seal of one that is
-- loading, that of one that is whole, the positions of the bits.
-- Returns 1, or 0 if the bitmap is missing or another's; then nothing is set, so
-- a set that was deleted does not come back with half its bits.
local seal = redis.call('GETRANGE', KEYS[1], ARGV[1], ARGV[1] + 7)
if seal ~= ARGV[2] and seal ~= ARGV[3] then
  return 0
end
local bits = {}
for i = 4, #ARGV do
  local n = #bits
  bits[n + 1], bits[n + 2], bits[n + 3], bits[n + 4] = 'SET', 'u1', ARGV[i], '1'
end
redis.call('BITFIELD', KEYS[1], unpack(bits))
return 1
