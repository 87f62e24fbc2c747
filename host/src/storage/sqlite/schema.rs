//! Versions of the file: what it must be before it is touched, and the numbered migrations.
//!
//! A file says who it belongs to (`application_id`) and which migrations it has had (`user_version`). One that belongs
//! to somebody else, or to a newer program, is refused before anything is written to it.

use rusqlite::{Connection, OptionalExtension};

use super::super::StorageError;
use super::super::check::other;
use super::error::refused;
use super::lock::LockFile;
use super::statements::{BEGIN_WRITE, COMMIT, ROLLBACK};

/// "Thkp".
const APPLICATION_ID: i32 = 0x5468_6b70;

/// Every migration in order; a file at version n has had the first n. One that was released is never edited.
const MIGRATIONS: [&str; 4] = [
    include_str!("schema/0001_records_and_logs.sql"),
    include_str!("schema/0002_threads_view.sql"),
    include_str!("schema/0003_usage_is_exact.sql"),
    include_str!("schema/0004_budget_ledger_view.sql"),
];

/// The version of a file that has had every migration.
pub(super) const fn newest() -> usize {
    MIGRATIONS.len()
}

/// Migrations that this file has had. Writes nothing.
pub(super) fn check(connection: &Connection) -> Result<usize, StorageError> {
    let number = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i32>(0))
            .map_err(|e| refused(&e))
    };
    let application = number("SELECT application_id FROM pragma_application_id")?;
    let version = number("SELECT user_version FROM pragma_user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    match (application, version, tables) {
        // Nobody's: new, or somebody died between making the file and its first migration.
        (0, 0, 0) => Ok(0),
        (APPLICATION_ID, version, _) => {
            refuse_planted(connection)?;
            let newest = MIGRATIONS.len();
            let newer = || {
                format!("the store is of version {version}, this program knows {newest}; update it")
            };
            let known = usize::try_from(version)
                .ok()
                .filter(|version| (1..=newest).contains(version));
            known.ok_or_else(|| other("newer-schema", newer()))
        }
        (application, ..) => Err(other(
            "foreign-database",
            format!("the file is a database of another program ({application:#x})"),
        )),
    }
}

/// Whoever can write the file could leave SQL in it that our own statements would run: a trigger, or a view in the place
/// of a table. (Connections do not run either, see `connection`; here it is said.)
fn refuse_planted(connection: &Connection) -> Result<(), StorageError> {
    let planted = "SELECT type, name FROM sqlite_schema WHERE type = 'trigger' OR type = 'view' AND \
                   (name LIKE 'record\\_%' ESCAPE '\\' OR name IN ('partition', 'entry', 'usage')) LIMIT 1";
    let found = connection.query_row(planted, [], |row| {
        Ok(format!(
            "{} {:?}",
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?
        ))
    });
    match found.optional().map_err(|error| refused(&error))? {
        None => Ok(()),
        Some(what) => Err(StorageError::Corrupt {
            message: format!("somebody else has put the {what} into the file; drop it"),
        }),
    }
}

/// Brings the file to the newest version, in one transaction, while others wait at the lock file.
pub(super) fn migrate(connection: &Connection, lock: &LockFile) -> Result<(), StorageError> {
    if check(connection)? == MIGRATIONS.len() {
        return Ok(());
    }
    let _turn = lock.acquire()?;
    let run = |sql: &str| {
        connection
            .execute_batch(sql)
            .map_err(|error| refused(&error))
    };
    run(BEGIN_WRITE)?;
    let done = migrate_in_transaction(connection).and_then(|()| run(COMMIT));
    if done.is_err() && !connection.is_autocommit() {
        run(ROLLBACK)?;
    }
    done
}

fn migrate_in_transaction(connection: &Connection) -> Result<(), StorageError> {
    // Asked again: another process may have been first.
    let had = check(connection)?;
    for migration in &MIGRATIONS[had..] {
        connection
            .execute_batch(migration)
            .map_err(|error| refused(&error))?;
    }
    let stamp = format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};",
        MIGRATIONS.len()
    );
    connection
        .execute_batch(&stamp)
        .map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use super::super::super::{COLLECTIONS, Shape};
    use super::*;

    #[test]
    fn every_collection_has_a_table_of_its_shape() {
        let connection = Connection::open_in_memory().unwrap();
        migrate_in_transaction(&connection).unwrap();
        let shape = "SELECT wr, strict FROM pragma_table_list WHERE name = ?1";
        for (collection, expected) in COLLECTIONS {
            let table = format!("record_{collection}");
            let found: (bool, bool) = connection
                .query_row(shape, [table], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap();
            assert_eq!(
                found,
                (expected == Shape::Small, true),
                "{collection}: without rowid, strict"
            );
        }
        let tables = "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        let count: u32 = connection.query_row(tables, [], |row| row.get(0)).unwrap();
        assert_eq!(
            count as usize,
            COLLECTIONS.len() + 3,
            "records, partition, entry, usage and nothing else"
        );
    }

    #[test]
    fn a_migrated_file_is_recognised() {
        let connection = Connection::open_in_memory().unwrap();
        assert_eq!(check(&connection).unwrap(), 0);
        migrate_in_transaction(&connection).unwrap();
        assert_eq!(check(&connection).unwrap(), MIGRATIONS.len());
    }
}
