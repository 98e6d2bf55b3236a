-- What the deeds of an operator share: inspect.lua and force.lua.
--
-- KEYS[1]  the lock
-- KEYS[2]  the record of its holders
-- KEYS[3]..  of the kind
-- the last key  its last fence
-- ARGV[1]  what the lock looks like: hash, fair, rw, text or semaphore
-- ARGV[2]  how many holders are looked at: a key may hold anything, of any size,
--          and others wait while a script runs

-- reading returns how long the longest of a reader's first entries lasts, in ms, or
-- -2 when it has died.
local function reading(lock, reader, entered, entries)
  local longest = -2
  for i = 1, math.min(tonumber(entered) or 0, entries) do
    longest = math.max(longest, redis.call('pttl', timeouts(lock, reader) .. ':' .. i))
  end
  return longest
end

-- fields returns those of a hash, {name, value, ...}: of a large one, some.
local function fields(key, most)
  if redis.call('hlen', key) <= most then
    return redis.call('hgetall', key)
  end
  return redis.call('hscan', key, 0, 'count', most)[2]
end

-- holders returns how many there are, {owner, entered, ms left, ...} of most of
-- them, and the mode of a read-write lock.
local function holders(lock, is, shape, most)
  local list = {}
  local function add(owner, entered, left)
    list[#list + 1], list[#list + 2], list[#list + 3] = owner, tostring(entered), left
  end
  if shape == 'semaphore' then
    local now = now_ms()
    local alive = string.format('(%.0f', now)
    local leases = redis.call('zrangebyscore', KEYS[3], alive, '+inf', 'withscores', 'limit', 0, most)
    for i = 1, #leases, 2 do
      add(leases[i], 1, leases[i + 1] - now)
    end
    return redis.call('zcount', KEYS[3], alive, '+inf'), list, ''
  end
  local left = redis.call('pttl', lock)
  if shape == 'text' and is == 'string' then
    local owner = redis.call('getrange', lock, 0, most)
    local parts = parts_of(lock, owner)
    local entries = redis.call('zcard', parts) - (redis.call('zscore', parts, owner) and 1 or 0)
    add(owner, 1 + entries, left)
    return 1, list, ''
  end
  if shape == 'text' or is ~= 'hash' then
    return 0, list, ''
  end
  local mode = redis.call('hget', lock, 'mode') or ''
  local all, isMode = fields(lock, most + 2), shape == 'rw' and mode ~= '' and 'mode' -- a field too
  local fence = redis.call('hexists', lock, 'ordergate_fence')
  local entries = math.max(2, 2 * most / #all)
  for i = 1, #all, 2 do
    local reader = isMode and string.sub(all[i], -6) ~= ':write'
    if all[i] ~= isMode and all[i] ~= 'ordergate_fence' then
      add(all[i], all[i + 1], reader and reading(lock, all[i], all[i + 1], entries) or left)
    end
  end
  return redis.call('hlen', lock) - (isMode and 1 or 0) - fence, list, mode
end
