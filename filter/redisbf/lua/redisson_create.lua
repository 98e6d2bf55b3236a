-- Makes the configuration of an RBloomFilter, as Redisson's tryInit does. The
-- bitmap comes into being with the first item.
-- KEYS: the configuration, the bitmap; in one slot. ARGV: size, hashIterations,
-- expectedInsertions, falseProbability.
-- Returns 1, or 0 if either key is there.
if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'size', ARGV[1], 'hashIterations', ARGV[2],
  'expectedInsertions', ARGV[3], 'falseProbability', ARGV[4])
return 1
