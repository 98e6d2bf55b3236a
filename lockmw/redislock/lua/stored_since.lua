-- Before an acquire: returns the stored answer of an earlier call if it was stored after the caller
-- came, and takes nothing. The age of an answer is what is missing from its time to live, so no
-- other clock takes part.
--
-- KEYS[#KEYS]  the stored answer, a string; the rest as in acquire.lua
-- ARGV[#ARGV]  the time to live of one that was stored when the caller came, ms, and one more: both
--              times are cut to milliseconds
-- returns  its text, if there is one
if redis.call('pttl', KEYS[#KEYS]) >= tonumber(ARGV[#ARGV]) then
  return redis.call('get', KEYS[#KEYS])
end
