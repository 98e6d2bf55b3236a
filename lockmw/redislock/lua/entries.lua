-- The strings of a read-write lock, one for each entry of a reader:
-- "<lock>:<owner>:rwlock_timeout:<n>".

-- timeouts returns the name of an owner's entries, less the number. It lies in
-- the lock's slot.
local function timeouts(lock, owner)
  return beside(lock, owner .. ':rwlock_timeout')
end
