-- Before a release: gives back the stored answers that this call has suspended, since it has undone nothing.
-- Those that another one has suspended stay so.
--
-- KEYS[2]  the record of the holders
-- KEYS[#KEYS]  the marks; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease; or a call within it
-- ARGV[7].. the names of the answers, or '*'
redis.call('hdel', KEYS[2], '') -- when memory is full, a script that has written may write
for i = 7, #ARGV do
  local below, may = read_mark(redis.call('hget', KEYS[#KEYS], ARGV[i]))
  local others, mine = without(may, ARGV[4])
  local rest, during = without(others, ARGV[4] .. '.') -- what store.lua has suspended for it
  if mine or during then
    redis.call('hset', KEYS[#KEYS], ARGV[i], write_mark(below, rest))
  end
end
