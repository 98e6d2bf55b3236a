-- Before a release: forgets stored answers, since the call has undone what they report.
--
-- KEYS[ARGV[5]]..  the stored answers; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease
-- ARGV[5]  the index of the first
for i = tonumber(ARGV[5]), #KEYS do
  redis.call('del', KEYS[i])
end
