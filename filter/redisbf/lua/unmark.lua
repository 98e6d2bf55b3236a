-- Ends the generation of a filter, and begins a load. Items: the ends of ARGV[2]
-- generations, the load.
-- Returns which of them it ended, from 1; 0 the filter is gone; -2 it is full; -3
-- all of them are over already.
local generations = tonumber(ARGV[2])
for g = 0, generations - 1 do
  if not marked(g * n) then
    if mark(g * n) and mark(generations * n) then
      return g + 1
    end
    return -2
  end
end
return -3
