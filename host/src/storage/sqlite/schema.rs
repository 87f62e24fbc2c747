//! Versions of the file: the checks before it is touched, and the numbered migrations.
//!
//! A file names its program (`application_id`) and the migrations that it has had (`user_version`).
//! A file of another program, or of a newer version, is refused before anything is written to it.
//! So is a file whose schema is not, to the letter, the result of those migrations: SQLite runs SQL
//! that is in a file (see [`schema_reader`](super::schema_reader)). Only views may differ, because
//! the program never reads one; the next opening that can write makes ours again.

use std::sync::{Arc, OnceLock};

use rusqlite::Connection;

use super::super::StorageError;
use super::super::check::other_error;
use super::connection::{ReadMode, SqliteSession};
use super::error::error_before_commit;
use super::files::StoreFiles;
use super::lock::LockFile;
use super::schema_reader;
use super::statements::{BEGIN_WRITE, COMMIT, ROLLBACK};

/// "Thkp".
const APPLICATION_ID: i32 = 0x5468_6b70;

/// Every migration in order; a file at version n has had the first n. A released one is never
/// edited.
const MIGRATIONS: [&str; 5] = [
    include_str!("schema/0001_records_and_logs.sql"),
    include_str!("schema/0002_threads_view.sql"),
    include_str!("schema/0003_usage_is_exact.sql"),
    include_str!("schema/0004_budget_ledger_view.sql"),
    include_str!("schema/0005_state_and_other_collections.sql"),
];

/// Most bytes of a name that an error repeats.
const SHOWN_BYTES_MAX: usize = 100;

/// The version of a file that has had every migration.
pub(super) const fn newest_version() -> usize {
    MIGRATIONS.len()
}

/// One row of the schema: a table, an index, a view or a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaObject {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) table: String,
    /// `None` for an index that a constraint makes.
    pub(super) sql: Option<String>,
}

impl SchemaObject {
    /// Reads a row of type, name, table and SQL.
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            kind: row.get(0)?,
            name: row.get(1)?,
            table: row.get(2)?,
            sql: row.get(3)?,
        })
    }
}

/// The header and schema of a file. The default is that of an empty file.
#[derive(Debug, Default)]
pub(super) struct FoundSchema {
    /// Changes with each change of the schema.
    pub(super) cookie: i32,
    pub(super) application: i32,
    pub(super) version: i32,
    pub(super) objects: Vec<SchemaObject>,
}

/// The schema of a file that passed the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckedSchema {
    pub(super) cookie: i32,
    /// Number of migrations that the file has had.
    pub(super) version: usize,
    /// True if our views are in the file, as the migrations make them.
    pub(super) has_views: bool,
}

impl FoundSchema {
    /// Refuses a file that is not ours, of a newer program, or with anything foreign in its schema.
    pub(super) fn check(&self) -> Result<CheckedSchema, StorageError> {
        let cookie = self.cookie;
        match (self.application, self.version) {
            // Without owner: a new file, or a process died between making the file and its first
            // migration.
            (0, 0) if self.objects.is_empty() => Ok(CheckedSchema {
                cookie,
                version: 0,
                has_views: true,
            }),
            (APPLICATION_ID, version) => {
                let newest = MIGRATIONS.len();
                let newer = || {
                    format!(
                        "the store is of version {version}, this program knows {newest}; update it"
                    )
                };
                let known = usize::try_from(version)
                    .ok()
                    .filter(|version| (1..=newest).contains(version));
                let version = known.ok_or_else(|| other_error("newer-schema", newer()))?;
                Ok(CheckedSchema {
                    cookie,
                    version,
                    has_views: self.compare_objects(&expected_schema(version)?)?,
                })
            }
            (application, _) => Err(other_error(
                "foreign-database",
                format!("the file is a database of another program ({application:#x})"),
            )),
        }
    }

    /// Compares the schema; true if the views are equal, too, an error if anything else differs.
    fn compare_objects(&self, expected: &[SchemaObject]) -> Result<bool, StorageError> {
        let corrupt = |message| Err(StorageError::Corrupt { message });
        let mut has_views = true;
        for object in &self.objects {
            match expected.iter().find(|ours| ours.name == object.name) {
                Some(ours) if ours == object => {}
                Some(ours) if ours.is_view() && object.is_view() => has_views = false,
                Some(_) => {
                    let what = object.display_name();
                    return corrupt(format!(
                        "somebody else has changed the {what} of the file; put back a backup"
                    ));
                }
                None => {
                    let what = object.display_name();
                    return corrupt(format!(
                        "somebody else has put the {what} into the file; drop it"
                    ));
                }
            }
        }
        for ours in expected {
            let found = self.objects.iter().any(|object| object.name == ours.name);
            if !found && !ours.is_view() {
                let what = ours.display_name();
                return corrupt(format!(
                    "somebody else has dropped the {what} of the file; put back a backup"
                ));
            }
            has_views &= found;
        }
        Ok(has_views)
    }
}

impl SchemaObject {
    fn is_view(&self) -> bool {
        self.kind == "view"
    }

    /// Kind and name for a person, shortened, with characters that a terminal could interpret
    /// escaped.
    fn display_name(&self) -> String {
        let cut = |text: &str| text[..text.floor_char_boundary(SHOWN_BYTES_MAX)].to_owned();
        format!("{} {:?}", cut(&self.kind).escape_default(), cut(&self.name))
    }
}

/// The schema of the first `version` migrations, made once in a process.
fn expected_schema(version: usize) -> Result<Arc<[SchemaObject]>, StorageError> {
    static EXPECTED: [OnceLock<Arc<[SchemaObject]>>; MIGRATIONS.len() + 1] =
        [const { OnceLock::new() }; MIGRATIONS.len() + 1];
    let kept = EXPECTED.get(version);
    if let Some(made) = kept.and_then(OnceLock::get) {
        return Ok(Arc::clone(made));
    }
    let made = build_expected_schema(version).map_err(|error| error_before_commit(&error))?;
    if let Some(kept) = kept {
        // Another thread may have been first, with the same result.
        let _ = kept.set(Arc::clone(&made));
    }
    Ok(made)
}

fn build_expected_schema(version: usize) -> rusqlite::Result<Arc<[SchemaObject]>> {
    let connection = Connection::open_in_memory()?;
    for migration in &MIGRATIONS[..version.min(MIGRATIONS.len())] {
        connection.execute_batch(migration)?;
    }
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], SchemaObject::read)?;
    rows.collect()
}

/// Examines the file and refuses one that fails the checks. Then records its cookie as checked.
pub(super) fn check_file(
    place: &Arc<StoreFiles>,
    reading: ReadMode,
) -> Result<CheckedSchema, StorageError> {
    let checked = schema_reader::read_schema(place, reading)?.check()?;
    place.record_schema(checked.cookie);
    Ok(checked)
}

/// Migrates the file to the newest version, in one transaction, while others wait at the lock file.
pub(super) fn migrate(connection: &SqliteSession, lock: &LockFile) -> Result<(), StorageError> {
    let place = connection.place();
    let found = check_file(place, ReadMode::Shared)?;
    if found.version == MIGRATIONS.len() && found.has_views {
        return Ok(());
    }
    let _turn = lock.acquire()?;
    let run = |sql: &str| {
        connection
            .execute_batch(sql)
            .map_err(|error| error_before_commit(&error))
    };
    run(BEGIN_WRITE)?;
    let done = migrate_in_transaction(connection, place).and_then(|()| run(COMMIT));
    if done.is_err() && !connection.is_autocommit() {
        run(ROLLBACK)?;
    }
    done?;
    check_file(place, ReadMode::Shared).map(drop)
}

fn migrate_in_transaction(
    connection: &Connection,
    place: &Arc<StoreFiles>,
) -> Result<(), StorageError> {
    // Checked again, while no other process can write: another one may have been first.
    let found = check_file(place, ReadMode::Shared)?;
    let views = if found.has_views {
        Vec::new()
    } else {
        let all = expected_schema(found.version)?;
        all.iter().filter(|ours| ours.is_view()).cloned().collect()
    };
    apply_migrations(connection, found.version, &views).map_err(|error| error_before_commit(&error))
}

/// Makes `views` again and applies the migrations after the first `had`.
fn apply_migrations(
    connection: &Connection,
    had: usize,
    views: &[SchemaObject],
) -> rusqlite::Result<()> {
    for view in views {
        let (name, sql) = (&view.name, view.sql.as_deref().unwrap_or_default());
        connection.execute_batch(&format!("DROP VIEW IF EXISTS {name}; {sql};"))?;
    }
    for migration in &MIGRATIONS[had..] {
        connection.execute_batch(migration)?;
    }
    connection.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};",
        MIGRATIONS.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::{COLLECTIONS, RecordSizeClass};
    use super::*;

    #[test]
    fn every_collection_has_a_table_of_its_shape() {
        let connection = Connection::open_in_memory().unwrap();
        apply_migrations(&connection, 0, &[]).unwrap();
        let shape = "SELECT wr, strict FROM pragma_table_list WHERE name = ?1";
        for (collection, expected) in COLLECTIONS {
            let table = format!("record_{collection}");
            let found: (bool, bool) = connection
                .query_row(shape, [table], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap();
            assert_eq!(
                found,
                (expected == RecordSizeClass::Small, true),
                "{collection}: without rowid, strict"
            );
        }
        let tables = "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND name NOT \
                      LIKE 'sqlite_%'";
        let count: u32 = connection.query_row(tables, [], |row| row.get(0)).unwrap();
        assert_eq!(
            count as usize,
            COLLECTIONS.len() + 4,
            "records, those of other collections, partition, entry, usage and nothing else"
        );
    }

    #[test]
    fn each_version_is_recognised_and_nothing_else_is() {
        assert_eq!(FoundSchema::default().check().unwrap().version, 0);
        for version in 1..=MIGRATIONS.len() {
            let mut found = FoundSchema {
                cookie: 7,
                application: APPLICATION_ID,
                version: version as i32,
                objects: expected_schema(version).unwrap().to_vec(),
            };
            let checked = found.check().unwrap();
            assert!(checked.has_views && checked.version == version && checked.cookie == 7);
            found.objects.rotate_left(1);
            assert!(found.check().is_ok(), "the order says nothing");
            let lost = found.objects.pop().unwrap();
            let named = found.check().unwrap_err().to_string();
            assert!(named.contains(&lost.name), "{named}");
        }
    }
}
