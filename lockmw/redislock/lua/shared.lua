-- What kinds that several hold at once have in common: the record of their holders
-- tells the fence of each from the beginning, since the lock's last fence is that of
-- whoever came last.

-- note puts the fence of a new holder on record.
local function note(lock, owner, lease, fence)
  local record = beside(lock, 'ordergate_holders')
  redis.call('hset', record, owner, '{"fence":' .. fence .. '}')
  lengthen(record, lease)
end

-- noted returns the fence of a holder that is on record.
local function noted(lock, owner)
  local text = redis.call('hget', beside(lock, 'ordergate_holders'), owner) or ''
  local fence = string.match(text, '"fence":(%d+)')
  return fence and tonumber(fence)
end
