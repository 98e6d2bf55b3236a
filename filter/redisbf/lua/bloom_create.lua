-- Makes a filter of RedisBloom or valkey-bloom with some items in it.
-- KEYS: the filter. ARGV: the false positive rate, the capacity, the items.
-- Returns 1, or 0 if the key is there. All in the slot of the one key.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('BF.RESERVE', KEYS[1], ARGV[1], ARGV[2], 'NONSCALING')
for i = 3, #ARGV do
  redis.call('BF.INSERT', KEYS[1], 'NOCREATE', 'ITEMS', ARGV[i])
end
return 1
