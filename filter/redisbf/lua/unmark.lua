-- Ends the generation of a filter, and begins a load. Items: the ends of ARGV[2]
-- generations, as many marks of one that is whole in the generation after each, the
-- load.
-- Returns which of them it ended last, from 1; 0 the filter is gone; -2 it is full;
-- -3 all of them are over.
local generations = tonumber(ARGV[2])
for g = 0, generations - 1 do
  if not marked(g * n) then
    if not mark(g * n) or not mark(2 * generations * n) then
      return -2
    end
    -- The next generation has to begin unmarked: by chance it may not, in a filter
    -- that is more than full.
    if not marked((generations + g) * n) then
      return g + 1
    end
  end
end
return -3
