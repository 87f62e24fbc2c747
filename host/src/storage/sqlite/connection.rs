//! Opening connections: three kinds, with the settings that each needs.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::super::StorageError;
use super::super::check::other;
use super::Durability;
use super::error::refused;
use super::files::Place;
use super::lock::LockFile;
use super::schema;
use super::statements::STATEMENTS_KEPT;

/// The oldest SQLite without the WAL-reset defect. The bundled one is newer; a system library might not be.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How long a connection waits for somebody who does not queue at the lock file: another program, or a checkpoint.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(4);
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

/// A connection, and the place through whose door it reaches its files: the door outlives it, because fields are dropped
/// in order.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    _place: Arc<Place>,
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// What a store that cannot be written is read through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Others may write meanwhile: through the memory that all share.
    Shared,
    /// The directory cannot be written, so there is no such memory; nor can anybody write the file through it.
    Still,
}

/// Refuses a library that is too old and a file that is not ours, before anything is written.
pub(super) fn check_first(place: &Arc<Place>, reading: Reading) -> Result<(), StorageError> {
    let version = rusqlite::version_number();
    if version < SQLITE_VERSION_MIN {
        return Err(other(
            "sqlite-too-old",
            format!("SQLite {version} is older than {SQLITE_VERSION_MIN}"),
        ));
    }
    if place.is_there()? {
        probe(place, reading).map(drop)
    } else {
        Ok(())
    }
}

/// The connection that writes. Makes the file if there is none and it may (`make`), and brings it to the newest version.
pub(super) fn open_writer(
    place: &Arc<Place>,
    lock: &LockFile,
    durability: Durability,
    make: bool,
) -> Result<Session, StorageError> {
    let made = if make {
        OpenFlags::SQLITE_OPEN_CREATE
    } else {
        OpenFlags::empty()
    };
    let connection = open(place, READ_WRITE.union(made))?;
    // SQLite opens what it may not write for reading.
    if connection
        .is_readonly("main")
        .map_err(|error| refused(&error))?
    {
        return Err(other(
            "read-only",
            "the file of the store may not be written",
        ));
    }
    set_up_writer(&connection, lock, durability)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn open_reader(place: &Arc<Place>, reading: Reading) -> Result<Session, StorageError> {
    match reading {
        Reading::Shared => open(place, READ_ONLY),
        Reading::Still => open(place, READ_ONLY.union(OpenFlags::SQLITE_OPEN_URI)),
    }
}

/// The connection that moves the write-ahead log into the file.
pub(super) fn open_checkpointer(
    place: &Arc<Place>,
    durability: Durability,
) -> Result<Session, StorageError> {
    let connection = open(place, READ_WRITE)?;
    let set_up = || {
        connection.busy_timeout(CHECKPOINT_BUSY_TIMEOUT)?;
        connection.execute_batch(synchronous(durability))
    };
    set_up().map_err(|error| refused(&error))?;
    Ok(connection)
}

/// How many migrations a file has had that can only be read: it must be all.
pub(super) fn check_readable(place: &Arc<Place>, reading: Reading) -> Result<(), StorageError> {
    if !place.is_there()? {
        return Err(other(
            "read-only",
            "there is no store, and none can be made",
        ));
    }
    if probe(place, reading)? < schema::newest() {
        let message = "the store is of an older version; open it once where it can be written";
        return Err(other("read-only", message));
    }
    Ok(())
}

/// Looks at a file through a connection that cannot change it, not even when it closes.
fn probe(place: &Arc<Place>, reading: Reading) -> Result<usize, StorageError> {
    let connection = open_reader(place, reading)?;
    let keep = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    keep.map_err(|error| refused(&error))?;
    schema::check(&connection)
}

fn open(place: &Arc<Place>, flags: OpenFlags) -> Result<Session, StorageError> {
    let door = place.door()?;
    let path = door.path().to_string_lossy();
    let path = if flags.contains(OpenFlags::SQLITE_OPEN_URI) {
        format!("file:{path}?immutable=1")
    } else {
        path.into_owned()
    };
    let connection = Connection::open_with_flags_and_vfs(path, flags, door.name())
        .and_then(|connection| settle(&connection).map(|()| connection));
    Ok(Session {
        connection: connection.map_err(|error| refused(&error))?,
        _place: Arc::clone(place),
    })
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // SQL that stands in the file is never run, also what is put there while it is open.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    // Without it, a statement is compiled anew whenever another value is bound: a third of a commit's time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch(&format!(
        "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{CACHE_KIB}; PRAGMA cell_size_check = ON;"
    ))
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
