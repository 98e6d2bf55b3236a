-- Conditions that have to hold before a lock is granted, on keys that are not the lock's.
--
-- A deed has them behind its own keys and arguments: for each condition a key, and as
-- arguments its kind and what the kind needs:
--
--   latch            the key is a countdown latch of Redisson that is open: it stands
--                    at 0 or below, or does not exist
--   exists, missing  the key does, or does not, exist
--   is, is_not       the key has the string of the argument, or has not. A key that does
--                    not exist has no string
--   within           two members of a GEO set are at most so many meters apart: the
--                    arguments are a member, a member, and the meters. A member that
--                    does not exist is nowhere
--
-- The scripts read these keys, and write nothing to them.

-- unmet returns the place of the first condition that does not hold, 0 when all do. First
-- and argument are the places of the first condition in KEYS and ARGV. When a key holds
-- something else than its condition is about, it returns its place and an error.
local function unmet(first, argument)
  for i = first, #KEYS do
    local key, kind, reply, holds = KEYS[i], ARGV[argument], nil, false
    argument = argument + 1
    if kind == 'exists' or kind == 'missing' then
      reply = redis.pcall('exists', key)
      holds = (reply == 1) == (kind == 'exists')
    elseif kind == 'within' then
      reply = redis.pcall('geodist', key, ARGV[argument], ARGV[argument + 1], 'm')
      holds = type(reply) == 'string' and tonumber(reply) <= tonumber(ARGV[argument + 2])
      argument = argument + 3
    else
      reply = redis.pcall('get', key)
      if kind == 'latch' then
        holds = not reply
        if type(reply) == 'string' then
          if string.find(reply, '^-?%d+$') then
            holds = tonumber(reply) <= 0
          else
            reply = {err = 'NOLATCH the key holds no number'}
          end
        end
      else
        holds = (reply == ARGV[argument]) == (kind == 'is')
        argument = argument + 1
      end
    end
    if type(reply) == 'table' and reply.err then
      return i - first + 1, reply.err
    end
    if not holds then
      return i - first + 1
    end
  end
  return 0
end
