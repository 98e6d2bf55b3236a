-- The calls within a lease, each a part of it with an end of its own. An owner has
-- them in a sorted set, parts_of, only while there are any: {part: its end, in ms
-- since 1970}. The first part is named like the owner: the call that got the lease,
-- until it is over. The others are entries: names that are used once. One that is
-- held, and renewed no more, has " held" behind its name.
--
-- Each part is taken out by its name. So to do anything twice is to do it once, and
-- nobody gives up another's part. The lease ends with the last of its parts.

-- last_for has a holder's lease last for ms at least: whoever asks again counts it from
-- the later question.
local function last_for(lock, owner, ms)
  if ends_in(lock, owner) < ms then
    set_end(lock, owner, ms)
  end
end

-- tidy forgets the parts that have ended, and has the lease end with the last of
-- the others. It returns nil when there is none.
local function tidy(lock, owner, parts)
  local now = now_ms()
  redis.call('zremrangebyscore', parts, '-inf', now)
  local last = redis.call('zrange', parts, -1, -1, 'withscores')
  if not last[2] then
    return nil
  end
  local left = last[2] - now
  local entries = redis.call('zcard', parts)
  if redis.call('zscore', parts, owner) then
    entries = entries - 1
  end
  if entries == 0 then
    redis.call('del', parts)
  else
    redis.call('pexpire', parts, left)
  end
  mark(lock, owner, entries + 1)
  set_end(lock, owner, left)
  return left
end

-- has_held reports whether an entry is held: nobody knows whether its call goes on.
local function has_held(lock, owner)
  for _, part in ipairs(redis.call('zrangebyscore', parts_of(lock, owner), now_ms(), '+inf')) do
    if string.sub(part, -5) == ' held' then
      return true
    end
  end
  return false
end

-- enter makes an entry a part of a holder's lease for ms.
local function enter(lock, owner, entry, ms)
  local parts, now = parts_of(lock, owner), now_ms()
  if redis.call('exists', parts) == 0 then
    redis.call('zadd', parts, string.format('%.0f', now + ends_in(lock, owner)), owner)
  end
  redis.call('zadd', parts, string.format('%.0f', now + ms), entry)
  tidy(lock, owner, parts)
end

-- prolong sets the end of a part, for the last time or to renew it. It returns
-- whether the part is there.
local function prolong(lock, owner, part, ms, last)
  local inner = nested(lock, owner)
  if inner == nil or not inner and part ~= owner then
    return false
  end
  if not inner then
    set_end(lock, owner, ms)
    return true
  end
  local parts, now = parts_of(lock, owner), now_ms()
  redis.call('zremrangebyscore', parts, '-inf', now)
  local till = redis.call('zscore', parts, part)
  if not till then
    return last and redis.call('zscore', parts, part .. ' held') ~= false
  end
  if last and part ~= owner then
    redis.call('zrem', parts, part)
    part = part .. ' held'
  elseif not last then
    ms = math.max(ms, till - now)
  end
  redis.call('zadd', parts, string.format('%.0f', now + ms), part)
  tidy(lock, owner, parts)
  return true
end

-- leave ends a part. It returns nil when there is no such part, false when others
-- still hold the lock, true when it is free.
local function leave(lock, owner, part, record)
  local inner = nested(lock, owner)
  if inner == nil or not inner and part ~= owner then
    return nil
  end
  if inner then
    local parts = parts_of(lock, owner)
    if redis.call('zrem', parts, part) == 0 then
      return nil
    end
    if tidy(lock, owner, parts) then
      return false
    end
  end
  return remove(lock, owner, record)
end

-- within reports whether a part of a lease is there: its call has the lock.
local function within(lock, owner, part)
  local inner = nested(lock, owner)
  if not inner then
    return inner ~= nil and part == owner
  end
  return tonumber(redis.call('zscore', parts_of(lock, owner), part) or 0) > now_ms()
end
