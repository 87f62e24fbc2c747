//! Opening connections: three kinds, with the settings that each needs.

use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::super::StorageError;
use super::super::check::other;
use super::Durability;
use super::error::refused;
use super::files::{LockFile, Place};
use super::schema;
use super::statements::STATEMENTS_KEPT;

/// The oldest SQLite without the WAL-reset defect. The bundled one is newer; a system library might not be.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How long a connection waits for somebody who does not queue at the lock file: another program, or a checkpoint.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a checkpoint may make writers wait for readers.
const CHECKPOINT_BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// Cache of a connection, in KiB.
const CACHE_KIB: u32 = 8 << 10;
/// What is left of the write-ahead log when it starts anew, in bytes: as much as it ordinarily grows to.
const LOG_BYTES_KEPT: u32 = 32 << 20;

const READ_WRITE: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
const READ_ONLY: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Refuses a library that is too old and a file that is not ours, before anything is written.
pub(super) fn check_first(place: &Place) -> Result<(), StorageError> {
    let version = rusqlite::version_number();
    if version < SQLITE_VERSION_MIN {
        return Err(other(
            "sqlite-too-old",
            format!("SQLite {version} is older than {SQLITE_VERSION_MIN}"),
        ));
    }
    if place.is_there()? {
        probe(place)
    } else {
        Ok(())
    }
}

/// The connection that writes. Makes the file if there is none and brings it to the newest version.
pub(super) fn open_writer(
    place: &Place,
    lock: &LockFile,
    durability: Durability,
) -> Result<Connection, StorageError> {
    let connection = open(place, READ_WRITE.union(OpenFlags::SQLITE_OPEN_CREATE))?;
    set_up_writer(&connection, lock, durability)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn open_reader(place: &Place) -> Result<Connection, StorageError> {
    open(place, READ_ONLY)
}

/// The connection that moves the write-ahead log into the file.
pub(super) fn open_checkpointer(
    place: &Place,
    durability: Durability,
) -> Result<Connection, StorageError> {
    let connection = open(place, READ_WRITE)?;
    let set_up = || {
        connection.busy_timeout(CHECKPOINT_BUSY_TIMEOUT)?;
        connection.execute_batch(synchronous(durability))
    };
    set_up().map_err(|error| refused(&error))?;
    Ok(connection)
}

/// Looks at a file through a connection that cannot change it, not even when it closes.
fn probe(place: &Place) -> Result<(), StorageError> {
    let connection = open(place, READ_ONLY)?;
    let keep = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    keep.map_err(|error| refused(&error))?;
    schema::check(&connection).map(drop)
}

fn open(place: &Place, flags: OpenFlags) -> Result<Connection, StorageError> {
    let path = place.path()?;
    let settled = |connection: Connection| {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // Without it, a statement is compiled anew whenever another value is bound: a third of a commit's time.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.execute_batch(&format!(
            "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{CACHE_KIB};"
        ))?;
        Ok(connection)
    };
    Connection::open_with_flags(path, flags)
        .and_then(settled)
        .map_err(|error| refused(&error))
}

fn set_up_writer(
    connection: &Connection,
    lock: &LockFile,
    durability: Durability,
) -> Result<(), StorageError> {
    let run = |sql: &str| {
        connection
            .execute_batch(sql)
            .map_err(|error| refused(&error))
    };
    {
        // Changing the mode of a new file needs it alone.
        let _turn = lock.acquire()?;
        run("PRAGMA page_size = 4096;")?;
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        });
        let mode = mode.map_err(|error| refused(&error))?;
        if mode != "wal" {
            return Err(other(
                "no-write-ahead-log",
                format!("the journal mode is {mode}"),
            ));
        }
    }
    run(synchronous(durability))?;
    run(&format!(
        "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {LOG_BYTES_KEPT};"
    ))?;
    schema::migrate(connection, lock)
}

fn synchronous(durability: Durability) -> &'static str {
    match durability {
        Durability::Full => "PRAGMA synchronous = FULL;",
        Durability::Normal => "PRAGMA synchronous = NORMAL;",
    }
}
