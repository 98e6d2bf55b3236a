-- Makes the bitmap of a shard, with all bits 0.
-- KEYS: the bitmap. ARGV: the length of the bits in bytes, the trailer behind them.
-- Returns 1, or 0 if the key is there. All in the slot of the one key.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])
return 1
