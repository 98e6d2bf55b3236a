-- What follows works on a filter of RedisBloom or valkey-bloom.
-- KEYS: the filter. ARGV: the items, from the third on, counted from 0.
local function there()
  return redis.call('EXISTS', KEYS[1]) == 1
end
local function has(item)
  return redis.call('BF.EXISTS', KEYS[1], ARGV[3 + item]) == 1
end
local function put(item)
  redis.call('BF.INSERT', KEYS[1], 'NOCREATE', 'ITEMS', ARGV[3 + item])
end
