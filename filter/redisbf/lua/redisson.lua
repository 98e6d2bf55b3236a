-- What follows works on an RBloomFilter of Redisson, if its configuration is as it
-- was. An item is as many positions as there are hashes.
-- KEYS: the configuration, the bitmap; in one slot. ARGV: n, the number of
-- generations, the positions of all items, then the size and the number of hashes.
local size, hashes = ARGV[#ARGV - 1], ARGV[#ARGV]
local function there()
  local config = redis.call('HMGET', KEYS[1], 'size', 'hashIterations')
  return config[1] == size and config[2] == hashes
end
local function has(item)
  for i = 3 + item * hashes, 2 + (item + 1) * hashes do
    if redis.call('GETBIT', KEYS[2], ARGV[i]) == 0 then
      return false
    end
  end
  return true
end
local function put(item)
  for i = 3 + item * hashes, 2 + (item + 1) * hashes do
    redis.call('SETBIT', KEYS[2], ARGV[i], 1)
  end
end
