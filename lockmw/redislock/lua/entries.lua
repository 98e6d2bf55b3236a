-- The strings of a read-write lock, one for each entry of a reader:
-- "<lock>:<owner>:rwlock_timeout:<n>".

-- timeouts returns the name of an owner's entries, less the number. It lies in
-- the lock's slot.
local function timeouts(lock, owner)
  if string.find(lock, '{', 1, true) then
    return lock .. ':' .. owner .. ':rwlock_timeout'
  end
  return '{' .. lock .. '}:' .. owner .. ':rwlock_timeout'
end
