-- The count of bytes is exact or not there. Earlier programs left a count behind when they wrote without a quota, and
-- counted anew at each open; from this version on, a commit with a quota changes the count and a commit without one
-- removes it, in the transaction of the commit itself. So whoever finds a count need not read the file.
DELETE FROM usage;
