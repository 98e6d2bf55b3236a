-- Reads a page of a filter's change log: identity, members, tail and entries in one
-- atomic step, so that nothing can change between a look at the one and the other.
-- It renews the reader's lease and takes in what was pushed to the inbox, too. A reader that
-- refuses by a window is noted with what it has of the log: a window that nobody can see
-- is none.
--
-- ARGV[3]   sequence number of the entry to begin with, 0 for the beginning
-- ARGV[4]   how many entries at most
-- ARGV[5]   the reader as a member, '' if it is none
-- ARGV[6]   the server's time in a reply that the reader had earlier, 0 for no renewal
-- ARGV[7]   the era in that reply
-- ARGV[8]   how long a lease is, in ms
-- ARGV[9]   after how long a lapsed member is taken for gone, in ms
-- ARGV[10]  how many IDs to take from the inbox at most
-- ARGV[11]  '1' if another member runs at the reader's place, as far as it knows
-- ARGV[12]  who reads, "<name>/<its window in ms>"; '' if nothing is refused by what it reads
-- ARGV[13]  the nonce of the entry that it begins with, '' at the beginning
-- ARGV[14]  what it has heard of behind that entry: the last entry of each batch, "<entry ID> <nonce> " and so on
-- ARGV[15]  the era in which it had its last reply, '' if it has yet to reach the tail: in another one it
--           is not noted yet, so that it learns first what windows others have heard of
-- ARGV[16], ...  members that there must be
-- Returns   {epoch, sequence number of the tail, server's time in ms, era, a member
--           that may have IDs which are not here or '', whether the reader is a member,
--           how many IDs are left in the inbox, entries, all members if the reader
--           renewed its lease, why the server does not tell the name of its history or
--           '' if it does, up to which entry all readers have the log, the longest window of
--           a reader before this call in ms, whether the reader was noted, with which entry the entries begin: the
--           last that was heard of if all of that is in this log, or that of ARGV[3]}
--
-- A replica's tail proves nothing, nor does that of a master that was cut off and
-- replaced. So this asks to write, which the first refuses always, and the second
-- where min-replicas-to-write is set. The hash never expires: nothing changes, and
-- there is nothing to send to replicas but the time, now and then.
redis.call('PERSIST', meta)

local me, base = ARGV[5], tonumber(ARGV[6])
local mine = me ~= '' and redis.call('ZSCORE', members, me) and 1 or 0
-- From the time in an earlier reply, not from that of this call: a renewal that was
-- long on its way grants nothing.
if mine == 1 and base > 0 and ARGV[7] == era and base <= now then
  redis.call('ZADD', members, decimal(base + tonumber(ARGV[8])), me)
end

local waiting = redis.call('LLEN', inbox)
for _ = 1, math.min(waiting, tonumber(ARGV[10])) do
  local id = redis.call('LINDEX', inbox, 0)
  if #id > 0 and #id <= 256 then
    put('id/', id) -- unlike those that an ordergate has checked
  else
    put('doubt', 'lost: an ID of ' .. #id .. ' bytes was pushed to the inbox')
  end
  redis.call('LPOP', inbox) -- not before: a script that fails half-way undoes nothing
  waiting = waiting - 1
end

-- A member that is no instance stands for a table. It concerns those who require it.
local required = {}
for i = 16, #ARGV do required[ARGV[i]] = true end
local away = ''
local place = mine == 1 and string.match(me, '^(.*#)')
local over = redis.call('ZRANGEBYSCORE', members, '-inf', '(' .. decimal(now), 'WITHSCORES', 'LIMIT', 0, 64)
for i = 1, #over, 2 do
  if over[i] == me then -- what only the reader knows it knows
  elseif place and ARGV[11] ~= '1' and tonumber(over[i + 1]) % 1 == 0 and string.sub(over[i], 1, #place) == place then
    -- One that was here before, and that somebody else has called back: it was told of
    -- when the reader joined.
    redis.call('ZREM', members, over[i])
    count()
  elseif tonumber(over[i + 1]) < now - tonumber(ARGV[9]) then
    put('doubt', 'crash: the ordergate at ' .. over[i] .. ' was not heard of for too long')
    redis.call('ZREM', members, over[i])
    count()
  elseif required[over[i]] or string.find(over[i], '#', 1, true) then
    away = over[i]
  end
end
if modern ~= tostring(redis.call('ZCARD', members)) then
  for _, m in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    if string.find(m, '#', 1, true) and not string.find(m, '~%+?$') then away = m end
  end
end
for i = 16, #ARGV do
  if not redis.call('ZSCORE', members, ARGV[i]) then away = ARGV[i] end
end

-- What the reader has of another log, or of what another server had, it does not have of this one:
-- the entry that it begins with is to be where it has it, and so is the last of each batch. A batch came
-- from one server, and logs that have an entry in common have all before it in common.
local function has(number, as)
  local e = redis.call('XREVRANGE', log, number, number)[1]
  return e and e[2][4] == as
end
local from, applied = ARGV[3], 0
if ARGV[12] ~= '' and (from == '0' or has(from .. '-0', ARGV[13])) then
  local heard = from
  for number, as in string.gmatch(ARGV[14], '(%d+)%-0 (%S+) ') do
    if not has(number .. '-0', as) then
      heard = from
      break
    end
    heard = number
  end
  from, applied = heard, tonumber(heard)
end

local entries = redis.call('XRANGE', log, from .. '-0', '+', 'COUNT', ARGV[4])
local last = entries[#entries] and tonumber(string.match(entries[#entries][1], '^%d+')) or 0
if last > seq then -- somebody else has written to the log
  seq = last
  redis.call('HSET', meta, 'seq', decimal(seq))
end

local own = string.match(ARGV[12], '/(%d+)$')
local longest = longestWindow()
if not longest and own and redis.call('ZCARD', members) <= mine then -- nobody else is to hear of it
  longest = own
  redis.call('HSET', meta, 'window', own)
end
longest = longest or '0'
local noted = own and ARGV[15] == era and 1 or 0
local all, none = least()
if noted == 1 then
  if tonumber(own) > tonumber(longest) then redis.call('HSET', meta, 'window', own) end
  local new = redis.call('ZADD', readers, decimal(applied), ARGV[12])
  redis.call('ZADD', reads, decimal(seq), ARGV[12])
  if new == 1 then countReaders() end
  if none then all = least() else all = tellLeast(all) end
end

return {epoch, decimal(seq), decimal(now), era, away, mine, waiting, entries,
  base > 0 and redis.call('ZRANGE', members, 0, -1) or {}, untold, decimal(all), longest, noted, from}
