-- Declares a filter whole, if it has been there since the load began and no other
-- load began later. Items: the load, its generation, the end of that.
-- Returns 1, also when it was declared before; 0 the filter is gone; -1 it is not
-- the one of the load; -2 it is full.
if not marked(0) or marked(2 * n) then
  return -1
end
return mark(n) and 1 or -2
