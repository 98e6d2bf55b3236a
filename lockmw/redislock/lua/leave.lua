-- Ends a re-entry: the guard before release.lua, so that the same entry is not
-- left twice.
--
-- the last key  the entry
if redis.call('del', KEYS[#KEYS]) == 0 then
  return 0
end
