-- What every script on a filter's change log begins with: it looks whether the log
-- is the one it was, and says so in the log itself if it is not.
--
-- KEYS[1]  the log, a stream whose entry IDs are "<sequence number>-0"
-- KEYS[2]  what is known of the log, a hash: epoch (its identity), seq (number of its
--          last entry), term (of the server's history), now (the latest time
--          seen, to 50 ms), era (named anew whenever all leases end), members (how many there are),
--          modern (how many of them wait for windows), readers (how many there are), window
--          (the longest of any reader that there was, in ms), trimmed (see trim.lua),
--          left (the members that left last, see leave.lua)
-- KEYS[3]  its members, a sorted set: who may append, and until when the lease is, in
--          milliseconds of the server's clock
-- KEYS[4]  the inbox, a list of IDs that anybody may push to
-- KEYS[5]  its readers, a sorted set: who may refuse by a window, and up to which entry it
--          has said that it has applied the log, in this era
-- KEYS[6]  their reads, a sorted set: the number of the log's last entry at the last read of each
-- KEYS[7]  what all readers have, a stream of one entry: an era, and the least number of its
--          readers; written when that grows
-- ARGV[1]  a nonce, unique to this call; a client that had no answer may repeat the call
-- ARGV[2]  how many entries the log keeps at least, 0 for all
-- Slot     all keys share the hash tag {<filter>}
local log, meta, members, inbox, readers, reads, had = unpack(KEYS, 1, 7)
local nonce, keep = ARGV[1], tonumber(ARGV[2])
local epoch, seq, era
local modern, window -- as meta has them at the beginning
local history -- what INFO says of it, if the server tells its name
local untold = '' -- why it does not, if it does not

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- tostring turns 1e14 and more into an exponent.
local function decimal(n) return string.format('%.0f', n) end

-- Names what begins with this run of the script: a call that is repeated must not name
-- another thing the same.
local unique = nonce .. '.' .. clock[1] .. '.' .. clock[2]

-- Returns the number of the entry at the log's end, 0 if it has none.
local function tail()
  local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  return last and tonumber(string.match(last[1], '^%d+')) or 0
end

local function add(number, field, value)
  if keep > 0 then
    return redis.pcall('XADD', log, 'MAXLEN', '~', keep, number .. '-0', field, value, 'n', nonce)
  end
  return redis.pcall('XADD', log, number .. '-0', field, value, 'n', nonce)
end

-- Appends an entry. A log that was damaged is not made whole here: it keeps its
-- gap, so that every reader finds it, and takes the entry nevertheless. An ID
-- refused is an ID lost.
local function put(field, value)
  seq = math.max(seq, tail()) + 1
  local done = add(decimal(seq), field, value)
  if type(done) == 'table' and done.err and string.find(done.err, 'equal or smaller', 1, true) then
    -- Its last entries were deleted, whose numbers it does not give again.
    local info = redis.call('XINFO', 'STREAM', log)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then seq = tonumber(string.match(info[i + 1], '^%d+')) + 1 end
    end
    done = add(decimal(seq), field, value)
  end
  if type(done) == 'table' and done.err then error(done.err, 0) end
  redis.call('HSET', meta, 'seq', decimal(seq))
end

-- Notes how many members there are, after each change: so their loss shows. A member of an
-- earlier release, without '~' at the end of its name, lets the answer to a create go before the windows of
-- others are over, and leaves modern as it is.
local function count()
  local n = 0
  for _, m in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    if not string.find(m, '#', 1, true) or string.find(m, '~%+?$') then n = n + 1 end
  end
  modern = tostring(n)
  redis.call('HSET', meta, 'members', redis.call('ZCARD', members), 'modern', modern)
end

-- Notes how many readers there are, after each change.
local function countReaders() redis.call('HSET', meta, 'readers', redis.call('ZCARD', readers)) end

-- Returns up to which entry all readers have the log, and true if there is none.
local function least()
  local first = redis.call('ZRANGE', readers, 0, 0, 'WITHSCORES')
  return tonumber(first[2] or '') or seq, not first[1]
end

-- Tells all when the least number has grown, and returns it. Its entry bears that number: the clock of another server
-- may be behind. (There is one of that number already: all were told.)
local function tellLeast(before)
  local now = least()
  if now > before then redis.pcall('XADD', had, 'MAXLEN', 1, decimal(now) .. '-0', 'era', era, 'least', decimal(now)) end
  return now
end

-- Returns the longest window of any reader in ms, nil if none is known: an operator may have set it.
local function longestWindow()
  return window and #window < 10 and string.match(window, '^%d+$') or nil
end

-- Returns for how many milliseconds leases have been granted here, in this era. Before
-- it, another server may have granted some, and go on as if nothing had happened. That
-- can't be if the log is as old as the era and this server never took over from another:
-- then it is all of the time.
local function age()
  local seconds, micros = string.match(era, '%.(%d+)%.(%d+)$')
  local promoted = history and not string.find(history, 'master_replid2:0+%s')
  if not seconds or era == epoch and not promoted then return now end
  return now - (tonumber(seconds) * 1000 + math.floor(tonumber(micros) / 1000))
end

-- Ends all leases, and makes renewals void that are still on their way. What readers have of the
-- log says nothing any more: another server may have told it. Windows go on; creators wait until
-- those that began before are over.
local function lapse()
  for _, m in ipairs(redis.call('ZRANGE', members, 0, -1)) do
    redis.call('ZADD', members, decimal(now - 1), m)
  end
  redis.call('DEL', readers, reads, had)
  countReaders()
  era = unique -- not a counter, which a failover would set back
  redis.call('HSET', meta, 'era', era)
end

do
  local known = redis.call('HMGET', meta, 'epoch', 'seq', 'term', 'now', 'era', 'members', 'readers', 'modern', 'window')
  epoch, seq, era, modern, window = known[1], tonumber(known[2] or ''), known[5], known[8], known[9]
  -- Without its members a log is none that anybody may rely on: one of them may be cut
  -- off. As another log it is noticed by all who knew them.
  local gone = redis.call('ZCARD', members) ~= (tonumber(known[6] or '') or 0)
  if not epoch or not seq or gone then
    epoch, seq = unique, math.max(seq or 0, tail())
    redis.call('HSET', meta, 'epoch', epoch, 'seq', decimal(seq))
    count()
    lapse()
    if seq > 0 then put('doubt', 'gap: its identity was gone, or its members') end
  end
  local known_readers = tonumber(known[7] or '') or 0
  if redis.call('ZCARD', readers) ~= known_readers or redis.call('ZCARD', reads) ~= known_readers then lapse() end
  -- The history's name is another one after each start of a server and each failover,
  -- and either may have lost what was acknowledged. Where it is not told, who reads is
  -- told that.
  local info = redis.pcall('INFO', 'replication')
  local term = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
  history = term and info
  if not term then untold = type(info) == 'table' and info.err or 'INFO has no master_replid' end
  if term and known[3] ~= term then
    redis.call('HSET', meta, 'term', term)
    if known[3] then
      lapse()
      put('doubt', 'term: Redis was restarted or failed over')
    end
  end
  -- A clock that was set back would make leases longer. One that was set forward would
  -- make members seem to be gone for good.
  local latest = tonumber(known[4] or '')
  local set = latest and (now < latest or now > latest + 60000)
  if set then lapse() end
  -- By every script, or a clock could go back by as much as nobody noted. At most 20 times a
  -- second, for the replicas' sake; and where memory is full, the rest works without it.
  if set or not latest or now >= latest + 50 then redis.pcall('HSET', meta, 'now', decimal(now)) end
  if not era then lapse() end
end
