//! The statements, one for each operation of the store. Each is prepared once for a connection and
//! kept there.

use super::super::quota::{ENTRY_BYTES_OVERHEAD, PARTITION_BYTES_OVERHEAD, RECORD_BYTES_OVERHEAD};
use super::super::{COLLECTIONS, VALUE_BYTES_MAX};
use rusqlite::ToSql;

/// Statements kept prepared by each connection: more than the eleven for each collection and the
/// dozen others.
pub(super) const STATEMENTS_KEPT: usize = 192;

pub(super) const BEGIN_READ: &str = "BEGIN";
/// Changes whenever the schema does. Reads the header of the file and loads no schema.
pub(super) const SCHEMA_COOKIE: &str = "PRAGMA main.schema_version";
pub(super) const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
pub(super) const SAVEPOINT: &str = "SAVEPOINT member";
pub(super) const RELEASE: &str = "RELEASE member";
pub(super) const ROLLBACK_TO: &str = "ROLLBACK TO member";

/// Makes a log; changes nothing if there is one. Parameters: log, name.
pub(super) const PARTITION_INSERT: &str =
    "INSERT INTO partition (log, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
/// Parameters: log, name.
pub(super) const PARTITION_GET: &str = "SELECT id FROM partition WHERE log = ?1 AND name = ?2";
/// Parameter: id.
pub(super) const PARTITION_DELETE: &str = "DELETE FROM partition WHERE id = ?1";
/// Adds the first entry of a log that was just made. Parameters: id of the entry, value.
pub(super) const ENTRY_FIRST: &str = "INSERT INTO entry (id, value) VALUES (?1, ?2)";
/// The row id of the entry at a position, if there is one at the position before. A log has no
/// gaps, so the position is the next one exactly when the entry before it exists and [`ENTRY_NEXT`]
/// finds its own place free. Parameters: log, name, position.
pub(super) const ENTRY_ID: &str = "SELECT p.id << 32 | ?3 FROM partition AS p WHERE p.log = ?1 \
                                      AND p.name = ?2 AND EXISTS (SELECT 1 FROM entry WHERE id = \
                                      (p.id << 32 | (?3 - 1)))";
/// Adds an entry under a row id that is free, else changes nothing. It does not look for the entry
/// before: SQLite first copies what an INSERT selects from its own table into a temporary one.
/// Parameters: row id, value.
pub(super) const ENTRY_NEXT: &str =
    "INSERT INTO entry (id, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
/// Position of the last entry. Parameters: log, name.
pub(super) const ENTRY_LAST: &str = "SELECT id & 4294967295 FROM entry WHERE id BETWEEN \
                                     (SELECT id FROM partition WHERE log = ?1 AND name = ?2) << 32 \
                                     AND \
                                     ((SELECT id FROM partition WHERE log = ?1 AND name = ?2) << \
                                     32 | 4294967295) ORDER BY id DESC \
                                     LIMIT 1";
/// True if a log has entries. Parameter: id of the log.
pub(super) const ENTRY_ANY: &str =
    "SELECT EXISTS (SELECT 1 FROM entry WHERE id BETWEEN ?1 << 32 AND (?1 << 32 | 4294967295))";
/// Number and size of the entries from one id to below another. Parameters: ids.
pub(super) const ENTRY_SIZES: &str =
    "SELECT count(*), coalesce(sum(octet_length(value)), 0) FROM entry WHERE id >= ?1 AND id < ?2";
/// Parameters: ids; the second one stays.
pub(super) const ENTRY_DELETE: &str = "DELETE FROM entry WHERE id >= ?1 AND id < ?2";
/// A page of a log, upwards: positions, bytes of the values, and the values that may be read.
/// Parameters: log, name, first position, limit.
pub(super) const LINES_UP: &str = "SELECT id & 4294967295, octet_length(value), \
                                   CASE WHEN octet_length(value) <= 1048576 THEN value END FROM \
                                   entry WHERE id BETWEEN \
                                   ((SELECT id FROM partition WHERE log = ?1 AND name = ?2) << 32 \
                                   | ?3) AND \
                                   ((SELECT id FROM partition WHERE log = ?1 AND name = ?2) << 32 \
                                   | 4294967295) ORDER BY id \
                                   LIMIT ?4";
/// A page of a log, downwards. Parameters: log, name, highest position, limit.
pub(super) const LINES_DOWN: &str = "SELECT id & 4294967295, octet_length(value), \
                                     CASE WHEN octet_length(value) <= 1048576 THEN value END FROM \
                                     entry WHERE id BETWEEN \
                                     ((SELECT id FROM partition WHERE log = ?1 AND name = ?2) << \
                                     32) AND \
                                     ((SELECT id FROM partition WHERE log = ?1 AND name = ?2) << \
                                     32 | ?3) ORDER BY id DESC \
                                     LIMIT ?4";

/// Every entry, with a name for a person, and, as in [`LINES_UP`], its bytes and its value.
pub(super) const ENTRIES: &str = "SELECT 'entry ' || (e.id & 4294967295) || ' of the log ' || \
                                  p.log || ' ' || CASE WHEN octet_length(p.name) <= 1048576 THEN \
                                  substr(p.name, 1, 512) \
                                  ELSE 'whose name has ' || octet_length(p.name) || ' bytes' END, \
                                  octet_length(e.value), \
                                  CASE WHEN octet_length(e.value) <= 1048576 THEN e.value END \
                                  FROM entry AS e JOIN partition AS p ON p.id = e.id >> 32";

/// A page of the names of logs. Parameters: log and name of the one before, limit.
pub(super) const LOG_NAMES: &str = "SELECT log, name FROM partition WHERE (log, name) > (?1, ?2) \
                                    ORDER BY log, name LIMIT ?3";

pub(super) const USAGE_GET: &str = "SELECT bytes FROM usage WHERE id = 1";
/// Parameter: bytes.
pub(super) const USAGE_PUT: &str =
    "INSERT INTO usage (id, bytes) VALUES (1, ?1) ON CONFLICT DO UPDATE SET bytes = excluded.bytes";
/// With a condition: without one SQLite writes the table's page even where there is no row.
pub(super) const USAGE_FORGET: &str = "DELETE FROM usage WHERE id = 1";

/// The table that the records of all other collections share.
pub(super) const OTHER_TABLE: &str = "record_other";

/// The table of a collection that [`COLLECTIONS`] lists.
pub(super) fn record_table(collection: &str) -> String {
    format!("record_{collection}")
}

/// The statements of one collection. Those of the shared table have one more parameter behind the
/// others, the collection: [`RecordStatements::bind`] adds it.
#[derive(Debug)]
pub(super) struct RecordStatements {
    shared: bool,
    /// Version. Parameter: name.
    pub(super) version: String,
    /// Version, bytes of the value, and the value if it may be read. Parameter: name.
    pub(super) get: String,
    /// Bytes of the value. Parameter: name.
    pub(super) size: String,
    /// Changes nothing if there is such a record. Parameters: name, value.
    pub(super) insert: String,
    /// Changes nothing if there is no record at that version. Parameters: name, version, value.
    pub(super) update: String,
    /// Parameters: name, value.
    pub(super) upsert: String,
    /// Parameter: name.
    pub(super) delete: String,
    /// Bytes of the name and the name if it may be read, version, bytes of the value and the value
    /// if it may be read, from the name on; without a limit, for the reader stops. Parameters:
    /// first name; a bounded one: end.
    pub(super) up: String,
    /// As `up`, below an end.
    pub(super) up_below: String,
    /// As `up`, backwards.
    pub(super) down: String,
    /// As `up_below`, backwards.
    pub(super) down_below: String,
    /// As `up`, of all records and in the order of the table. No parameter.
    pub(super) all: String,
    /// The names of all, which an index has. No parameter.
    pub(super) names: String,
}

/// Longest name that a scan reads, in bytes; of a longer one it gives the length alone. This
/// program writes no such name. SQLite reads a name whole or not at all, and refuses one that is
/// longer than a connection may read.
pub(super) const NAME_READ_BYTES_MAX: usize = 1 << 20;

impl RecordStatements {
    fn for_table(table: &str, shared: bool) -> Self {
        let value = readable_value_columns();
        let name = name_if_readable("name");
        // The collection is the parameter behind the `before` others.
        let scope = |before: u8| match shared {
            true => format!("collection = ?{} AND", before + 1),
            false => String::new(),
        };
        let one = format!("FROM {table} WHERE {} name = ?1", scope(1));
        let page = |before| {
            let scope = scope(before);
            format!("SELECT {name}, version, {value} FROM {table} WHERE {scope} name >= ?1")
        };
        let all = match shared {
            true => "WHERE collection = ?1",
            false => "",
        };
        let insert = match shared {
            true => format!(
                "INSERT INTO {table} (collection, name, version, value) VALUES (?3, ?1, 1, ?2) \
                 ON CONFLICT (collection, name) DO"
            ),
            false => format!(
                "INSERT INTO {table} (name, version, value) VALUES (?1, 1, ?2) \
                 ON CONFLICT (name) DO"
            ),
        };
        Self {
            shared,
            version: format!("SELECT version {one}"),
            get: format!("SELECT version, {value} {one}"),
            size: format!("SELECT octet_length(value) {one}"),
            update: format!(
                "UPDATE {table} SET version = version + 1, value = ?3 WHERE {} name = ?1 AND \
                 version = ?2",
                scope(3)
            ),
            upsert: format!("{insert} UPDATE SET version = version + 1, value = excluded.value"),
            insert: format!("{insert} NOTHING"),
            delete: format!("DELETE {one}"),
            up: format!("{} ORDER BY name", page(1)),
            up_below: format!("{} AND name < ?2 ORDER BY name", page(2)),
            down: format!("{} ORDER BY name DESC", page(1)),
            down_below: format!("{} AND name < ?2 ORDER BY name DESC", page(2)),
            names: format!("SELECT {name} FROM {table} {all} ORDER BY name"),
            all: format!("SELECT {name}, version, {value} FROM {table} {all}"),
        }
    }

    /// Returns the parameters of a statement for a record or page of a collection.
    pub(super) fn bind<'a>(
        &self,
        parameters: &[&'a dyn ToSql],
        collection: &'a dyn ToSql,
    ) -> Vec<&'a dyn ToSql> {
        let mut all = Vec::with_capacity(parameters.len() + 1);
        all.extend_from_slice(parameters);
        if self.shared {
            all.push(collection);
        }
        all
    }
}

/// The statements of every collection.
#[derive(Debug)]
pub(super) struct StoreStatements {
    /// In the order of [`COLLECTIONS`].
    records: [RecordStatements; COLLECTIONS.len()],
    /// Those of the table that all other collections share.
    others: RecordStatements,
}

impl StoreStatements {
    pub(super) fn new() -> Self {
        Self {
            records: COLLECTIONS.map(|(collection, _)| {
                RecordStatements::for_table(&record_table(collection), false)
            }),
            others: RecordStatements::for_table(OTHER_TABLE, true),
        }
    }

    /// The statements of a collection.
    pub(super) fn records(&self, collection: &str) -> &RecordStatements {
        let known = COLLECTIONS.iter().position(|(name, _)| *name == collection);
        known.map_or(&self.others, |place| &self.records[place])
    }
}

/// Two columns: the bytes of a value, and the value unless it is longer than the limit. Asking for
/// its length first reads none of it.
fn readable_value_columns() -> String {
    format!(
        "octet_length(value), CASE WHEN octet_length(value) <= {VALUE_BYTES_MAX} THEN value END"
    )
}

/// Two columns: the bytes of a name, and the name unless it is too long to be read.
fn name_if_readable(column: &str) -> String {
    format!(
        "octet_length({column}), \
         CASE WHEN octet_length({column}) <= {NAME_READ_BYTES_MAX} THEN {column} END"
    )
}

/// Counts every byte of the store again, as [`super::super::StorageQuota`] counts.
pub(super) fn usage_count_sql() -> String {
    let mut sql = format!(
        "SELECT (SELECT count(*) * {ENTRY_BYTES_OVERHEAD} + coalesce(sum(octet_length(value)), 0) \
         FROM entry) \
         + (SELECT count(*) * {PARTITION_BYTES_OVERHEAD} + coalesce(sum(octet_length(name)), 0) \
         FROM partition)"
    );
    let known = COLLECTIONS.map(|(collection, _)| record_table(collection));
    for table in known.into_iter().chain([OTHER_TABLE.to_owned()]) {
        sql += &format!(
            " + (SELECT count(*) * {RECORD_BYTES_OVERHEAD} + coalesce(sum(octet_length(name) + \
             octet_length(value)), 0) \
             FROM {table})"
        );
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constants cannot be formatted from numbers, so the number is written out there.
    #[test]
    fn entries_are_read_up_to_the_longest_value() {
        let longest = format!("<= {VALUE_BYTES_MAX} THEN");
        for sql in [LINES_UP, LINES_DOWN, ENTRIES] {
            assert!(sql.contains(&longest), "{sql}");
        }
    }
}
