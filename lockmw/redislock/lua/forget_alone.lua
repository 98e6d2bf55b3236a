-- Forgets stored answers without the lock, for an operator. Earlier calls store none afterwards that
-- counts: see common.lua. But a call that has the lock does, as its answer may be that of a settlement
-- which is not over.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fence
-- KEYS[3]  its marks
-- KEYS[4]..  the stored answers
-- ARGV[1]  how long a mark lasts, ms
-- ARGV[2]..  the names of the answers
-- returns  how many there were
local last, found = redis.call('get', KEYS[2]), 0
local kind, grant = redis.call('type', KEYS[1]).ok, nil
if kind == 'hash' then
  grant = redis.call('hget', KEYS[1], 'ordergate_fence')
elseif kind == 'string' then
  grant = redis.call('get', beside(KEYS[1], 'ordergate_grant'))
end
local number = tonumber(last or 0)
if not last or not grant or string.match(grant, '%d+$') ~= last then -- nobody, or not one of ours
  number = math.max(number, greatest_mark(KEYS[1])) + 1
end
for i = 4, #KEYS do
  local name, there = ARGV[i - 2], redis.pcall('get', KEYS[i])
  if there and (type(there) == 'table' or not undone(KEYS[1], KEYS[i], number_of(there))) then -- or something else than an answer
    found = found + 1
  end
  redis.call('del', KEYS[i])
  if last then -- the lock was granted before
    redis.call('hset', KEYS[3], name, string.format('%.0f', number), '', string.format('%.0f', math.max(number, greatest_mark(KEYS[1]))))
    lengthen(KEYS[3], ARGV[1])
  end
end
return found
