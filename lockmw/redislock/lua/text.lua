-- SET key owner NX PX, as services do it by hand. That ordergate did it, and with
-- which fence, stands beside it and ends with it, in a string: "<owner> <fence>".

local key_type = 'string'

local function grant_of(lock)
  return beside(lock, 'ordergate_grant')
end

local function granted(lock, owner)
  if redis.call('get', lock) ~= owner then
    return nil
  end
  local by, fence = string.match(redis.call('get', grant_of(lock)) or '', '^(.*) (%d+)$')
  return by == owner and tonumber(fence) or nil
end

local function taken(lock, owner)
  local holder = redis.call('get', lock)
  if not holder then
    return nil
  end
  local fence = holder == owner and granted(lock, owner)
  if fence then
    return nil, nil, fence
  end
  return redis.call('pttl', lock)
end

local function take(lock, owner, lease, fence)
  redis.call('set', lock, owner, 'px', lease)
  redis.call('set', grant_of(lock), owner .. ' ' .. fence, 'px', lease)
end

local function nested(lock, owner)
  if redis.call('get', lock) ~= owner then
    return nil
  end
  return redis.call('exists', parts_of(lock, owner)) == 1
end

local function mark(_, _, _)
end

local function set_end(lock, _, ms)
  redis.call('pexpire', lock, ms)
  redis.call('pexpire', grant_of(lock), ms)
end

local function remove(lock, _, record)
  redis.call('del', lock, record or lock, grant_of(lock))
  return true
end
