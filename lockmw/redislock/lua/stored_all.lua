-- Before an acquire of several locks: returns the first stored answer of an earlier call for
-- one of them, and takes nothing. See stored.lua.
--
-- KEYS     the locks, the last fence of each, the stored answer of each
-- ARGV[5]  the number of locks
-- returns  the text of the first stored answer that counts, or SUSPENDED
for i = 2 * ARGV[5] + 1, #KEYS do
  local found = found_answer(KEYS[i - 2 * ARGV[5]], KEYS[i])
  if found then
    return found
  end
end
