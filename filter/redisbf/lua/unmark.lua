-- Ends the generation of a filter, and begins a load. Items: the ends of ARGV[2]
-- generations and of one more, the marks of a filter that is whole in each but the
-- first, the load.
-- Returns which of them it ended last, from 1; 0 the filter is gone; -2 it is full;
-- -3 all of them are over.
local generations = tonumber(ARGV[2])
for g = 0, generations - 1 do
  if not marked(g * n) then
    if not mark(g * n) or not mark((2 * generations + 1) * n) then
      return -2
    end
    -- The next generation has to begin unmarked: by chance it may not, in a filter
    -- that is more than full.
    if not marked((g + 1) * n) and not marked((generations + 1 + g) * n) then
      return g + 1
    end
  end
end
return -3
