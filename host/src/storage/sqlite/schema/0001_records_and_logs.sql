-- Records and logs: the whole physical schema of a store.
--
-- A value is TEXT: one JSON document as the guest wrote it. A BLOB is reserved for encoded values and begins with a
-- codec byte; there is no codec yet, so a BLOB is refused by readers.
--
-- Sizes are counted with octet_length: length() of a TEXT ends at its first NUL.

-- Names of logs, interned: a log costs its name once and not with each entry. A row is here while its log has entries.
-- The unique index finds a log by name; each read and each append uses it.
CREATE TABLE partition (
    id INTEGER PRIMARY KEY CHECK (id >= 1),
    log TEXT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (log, name)
) STRICT;

-- Entries of all logs: id = partition << 32 | position. One thread's entries are neighbours, a row is found without a
-- second index, and a row of 4,061 bytes still fits into its page.
CREATE TABLE entry (
    id INTEGER PRIMARY KEY CHECK (id > 4294967296),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

-- Bytes in use, for the quota. One row, written by stores that are opened with a quota, counted anew by each open.
CREATE TABLE usage (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bytes INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT;

-- Large records, by rowid: a WITHOUT ROWID row over about 1,000 bytes would take an overflow page of its own.
CREATE TABLE record_thread (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

CREATE TABLE record_pin (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

CREATE TABLE record_head (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

CREATE TABLE record_chain (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

CREATE TABLE record_inbox (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

CREATE TABLE record_partial (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT;

-- Small records, in the order of their names: one page less for each write.
CREATE TABLE record_index (
    name TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT, WITHOUT ROWID;

CREATE TABLE record_due (
    name TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT, WITHOUT ROWID;

CREATE TABLE record_seen (
    name TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT, WITHOUT ROWID;

CREATE TABLE record_signature (
    name TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT, WITHOUT ROWID;

CREATE TABLE record_sweep (
    name TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT, WITHOUT ROWID;

CREATE TABLE record_blob (
    name TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    value ANY NOT NULL CHECK (typeof(value) IN ('text', 'blob'))
) STRICT, WITHOUT ROWID;
