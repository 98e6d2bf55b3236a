-- The end of a re-entry that had no part of its own: nothing is given up.
return 1
