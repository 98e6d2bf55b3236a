-- Before a release: gives back the stored answers that this call alone has suspended, since it has
-- undone nothing.
--
-- KEYS[2]  the record of the holders
-- KEYS[ARGV[5]]..  the stored answers; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease; or a call within it
-- ARGV[5]  the index of the first
redis.call('hdel', KEYS[2], '') -- a script that has written may write when memory is full
for i = tonumber(ARGV[5]), #KEYS do
  local text, _, by = answer_in(redis.pcall('get', KEYS[i]))
  if by == ARGV[4] then
    redis.call('set', KEYS[i], text, 'keepttl')
  end
end
