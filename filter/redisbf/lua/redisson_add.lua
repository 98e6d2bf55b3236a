-- Adds the items, all bits at once.
-- Returns 1, or 0 if the configuration is missing or another: then nothing is set.
if not there() then
  return 0
end
for i = 3, #ARGV - 2 do
  redis.call('SETBIT', KEYS[2], ARGV[i], 1)
end
return 1
