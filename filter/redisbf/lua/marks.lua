-- A mark is ARGV[1] items. A single one may be there by chance.
local n = tonumber(ARGV[1])
local function marked(first)
  for item = first, first + n - 1 do
    if not has(item) then
      return false
    end
  end
  return true
end
-- Reports whether it is there then: a full filter takes no item.
local function mark(first)
  for item = first, first + n - 1 do
    put(item)
  end
  return marked(first)
end
if not there() then
  return 0
end
