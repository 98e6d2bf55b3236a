-- Lets a call within a lease into its lock: a part of the lease from now on.
--
-- KEYS[1]  the lock
-- KEYS[2]  the record of its holders
-- KEYS[3]..  of the kind
-- ARGV[1]  lease, ms
-- ARGV[2]  owner
-- ARGV[3]  the entry: a name that is used once. Behind "=" it has the name of the stored answers of a
--          call that settles, or '*' for a call that undoes what such answers report
-- ARGV[4]  what the record says of a lease that is held
-- returns  the fence of the lease that is re-entered, 0 when the owner does not
--          hold the lock, or not by a grant of ordergate's, or when a part of its
--          lease is held. An inner write with a greater fence would shut out the
--          outer call's own. 0 too while another call within the lease has the same name
--          of stored answers, or one of the two settles and the other one undoes: nothing
--          would show which came first. The outer call may do either: an inner one acts for it.
local recorded = redis.call('hget', KEYS[2], ARGV[2])
if recorded and string.find(recorded, ARGV[4], 1, true) then
  return 0 -- it is renewed no more, by nobody
end
local fence = granted(KEYS[1], ARGV[2])
if not fence or has_held(KEYS[1], ARGV[2]) then
  return 0
end
local does = string.match(ARGV[3], '=(.*)$')
if does then
  for _, part in ipairs(redis.call('zrangebyscore', parts_of(KEYS[1], ARGV[2]), now_ms(), '+inf')) do
    local other = part ~= ARGV[3] and string.match(part, '=(.*)$')
    if other and (other == does or other == '*') ~= (does == '*') then
      return 0
    end
  end
end
enter(KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[1]))
lengthen(KEYS[2], ARGV[1])
return fence
