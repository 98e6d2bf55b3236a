-- Appends entries.
--
-- ARGV[3], ARGV[4], ...  what each is, "id" or "doubt", and its value
-- Returns  {sequence number of the last, epoch, era, its age in ms, the longest window of a reader in
--          ms}
for i = 3, #ARGV, 2 do put(ARGV[i], ARGV[i + 1]) end
return {decimal(seq), epoch, era, decimal(age()), longestWindow() or '0'}
