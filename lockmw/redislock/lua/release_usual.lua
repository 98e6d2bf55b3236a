-- The usual release of an exclusive lock, before all else that release.lua is: the owner
-- has it, and no calls within its lease. It is remove and announce without their
-- definitions, which would cost a tenth of it.
if not ARGV[4] and redis.call('hget', KEYS[1], ARGV[1]) == '1' then
  redis.call('del', unpack(KEYS))
  return 2 + redis.call(ARGV[2], ARGV[3], '0')
end
