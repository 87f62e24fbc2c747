-- The collection `state`, and one table for every collection that has none of its own: any name of 1 to 16 letters from a
-- to z. A later version that gives such a collection a table of its own moves its rows there.
--
-- Logs need nothing: the table `partition` holds the name of the log.
CREATE TABLE record_state (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

-- The unique index finds a record, and gives those of a collection in the order of their names; each read and each write
-- uses it.
CREATE TABLE record_other (
    id INTEGER PRIMARY KEY,
    collection TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob')),
    UNIQUE (collection, name)
) STRICT;
