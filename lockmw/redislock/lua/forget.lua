-- Before a release: forgets stored answers, since the call has undone what they report. The
-- answer of a later call stays, and so does that of a call within its lease. In the place of an
-- answer stands a mark with the fence of the call that has forgotten it, for an hour: longer than
-- an earlier call tries to store its own.
--
-- KEYS[ARGV[5]]..  the stored answers; the rest as in release.lua
-- ARGV[4]  the owner, for its own part of the lease; or a call within it
-- ARGV[5]  the index of the first
-- ARGV[6]  the fence of the lease
for i = tonumber(ARGV[5]), #KEYS do
  local text, mark = answer_in(redis.pcall('get', KEYS[i]))
  local fence = mark or string.match(text or '', '^(%d+) ') or 0
  if mark == ARGV[6] or tonumber(fence) < tonumber(ARGV[6]) then
    redis.call('del', KEYS[i])
    redis.call('set', KEYS[i], 'forgotten ' .. ARGV[6], 'px', 3600000)
  end
end
