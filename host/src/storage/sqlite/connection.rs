//! Opens connections of three kinds, with the settings that each needs, and begins their snapshots.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::super::StorageError;
use super::super::check::other;
use super::super::deadline;
use super::Durability;
use super::error::refused;
use super::files::Place;
use super::lock::LockFile;
use super::schema;
use super::statements::{BEGIN_READ, COMMIT, ROLLBACK, SCHEMA_COOKIE, STATEMENTS_KEPT};

/// The oldest SQLite without the WAL-reset defect. The bundled one is newer; a system library might
/// not be.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Longest wait of a connection for a lock whose holder does not queue at the lock file: another
/// program, or a checkpoint.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest time that a checkpoint may make writers wait for readers.
const CHECKPOINT_BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// Longest value and row that SQLite makes or reads, in bytes: four times the longest value of a
/// store. No value of a malicious file takes more memory.
const LENGTH_BYTES_MAX: i32 = 4 << 20;
/// SQLite instructions between two checks of the deadline: some microseconds.
const STEPS_BETWEEN_LOOKS: i32 = 1_000;
/// Attempts at a snapshot whose schema does not change while it is checked.
const SCHEMA_TRIES: u32 = 5;
/// Cache of a connection, in KiB.
const CACHE_KIB: u32 = 8 << 10;
/// Size to which the write-ahead log is cut when it restarts, in bytes: as much as it ordinarily
/// grows to.
const LOG_BYTES_KEPT: u32 = 32 << 20;

const READ_WRITE: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
const READ_ONLY: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// A connection, and the place whose VFS it uses: the VFS outlives the connection, because fields
/// are dropped in order.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    reading: Reading,
    deadline: Arc<StatementDeadline>,
    place: Arc<Place>,
}

/// The deadline at which the statements of a connection are interrupted.
#[derive(Debug, Default)]
struct StatementDeadline(Mutex<Option<Instant>>);

impl StatementDeadline {
    fn set(&self, deadline: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    fn is_over(&self) -> bool {
        let deadline = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Session {
    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Runs `question` in one snapshot whose schema is checked. A statement that is not done at the
    /// deadline of the call is interrupted. After an error the session may be inside a transaction.
    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        self.deadline.set(deadline::current());
        let answer = self.ask_in_snapshot(question);
        self.deadline.set(None);
        answer
    }

    fn ask_in_snapshot<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        self.begin_checked(BEGIN_READ)?;
        let answer = question(&self.connection).map_err(|error| refused(&error))?;
        self.execute(COMMIT).map_err(|error| refused(&error))?;
        Ok(answer)
    }

    /// Begins a transaction with `begin` and checks that the schema, as it is in the transaction,
    /// is ours: no part of an unchecked schema is loaded.
    pub(super) fn begin_checked(&self, begin: &str) -> Result<(), StorageError> {
        for _ in 0..SCHEMA_TRIES {
            self.execute(begin).map_err(|error| refused(&error))?;
            let cookie = self.schema_cookie().map_err(|error| refused(&error))?;
            if self.place.knows_schema(cookie)
                || schema::check(&self.place, self.reading)?.cookie == cookie
            {
                return Ok(());
            }
            self.execute(ROLLBACK).map_err(|error| refused(&error))?;
        }
        Err(StorageError::Unavailable {
            message: "the schema of the file changes all the time".to_owned(),
        })
    }

    fn schema_cookie(&self) -> rusqlite::Result<i32> {
        let mut statement = self.connection.prepare_cached(SCHEMA_COOKIE)?;
        statement.query_row([], |row| row.get(0))
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// The kind of connection for reading a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Other processes may write meanwhile: uses the shared memory.
    Shared,
    /// The directory cannot be written, so there is no shared memory, and no process can write the
    /// file through it.
    Still,
}

/// Refuses an old SQLite library and a foreign file, before anything is written.
pub(super) fn check_first(place: &Arc<Place>, reading: Reading) -> Result<(), StorageError> {
    let version = rusqlite::version_number();
    if version < SQLITE_VERSION_MIN {
        return Err(other(
            "sqlite-too-old",
            format!("SQLite {version} is older than {SQLITE_VERSION_MIN}"),
        ));
    }
    schema::check(place, reading).map(drop)
}

/// Opens the connection that writes. Makes a missing file if `make`, and migrates the file to the
/// newest version.
pub(super) fn open_writer(
    place: &Arc<Place>,
    lock: &LockFile,
    durability: Durability,
    make: bool,
) -> Result<Session, StorageError> {
    if make {
        place.make_private()?;
    }
    let connection = open(place, READ_WRITE, Reading::Shared)?;
    // SQLite opens a file without write permission for reading.
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

/// Opens a connection that reads.
pub(super) fn open_reader(place: &Arc<Place>, reading: Reading) -> Result<Session, StorageError> {
    open(place, reading.flags(), reading)
}

/// Opens the connection of the checkpoints.
pub(super) fn open_checkpointer(
    place: &Arc<Place>,
    durability: Durability,
) -> Result<Session, StorageError> {
    let connection = open(place, READ_WRITE, Reading::Shared)?;
    let set_up = || {
        connection.busy_timeout(CHECKPOINT_BUSY_TIMEOUT)?;
        connection.execute_batch(synchronous(durability))
    };
    set_up().map_err(|error| refused(&error))?;
    Ok(connection)
}

/// Checks that a file that can only be read has had all migrations.
pub(super) fn check_readable(place: &Arc<Place>, reading: Reading) -> Result<(), StorageError> {
    if !place.is_there()? {
        return Err(other(
            "read-only",
            "there is no store, and none can be made",
        ));
    }
    if schema::check(place, reading)?.version < schema::newest() {
        let message = "the store is of an older version; open it once where it can be written";
        return Err(other("read-only", message));
    }
    Ok(())
}

impl Reading {
    fn flags(self) -> OpenFlags {
        match self {
            Self::Shared => READ_ONLY,
            Self::Still => READ_ONLY.union(OpenFlags::SQLITE_OPEN_URI),
        }
    }
}

/// Opens a connection without settings, for [`super::look`], which cannot change the file.
pub(super) fn open_unsettled(
    place: &Arc<Place>,
    reading: Reading,
) -> Result<Session, StorageError> {
    connect(place, reading.flags(), reading)
}

fn open(place: &Arc<Place>, flags: OpenFlags, reading: Reading) -> Result<Session, StorageError> {
    let mut session = connect(place, flags, reading)?;
    restrict(&mut session).map_err(|error| refused(&error))?;
    // Before anything that loads the schema.
    session.begin_checked(BEGIN_READ)?;
    session
        .execute(COMMIT)
        .and_then(|()| settle(&session))
        .map_err(|error| refused(&error))?;
    Ok(session)
}

fn connect(
    place: &Arc<Place>,
    flags: OpenFlags,
    reading: Reading,
) -> Result<Session, StorageError> {
    let door = place.door()?;
    let path = door.path().to_string_lossy();
    let path = if flags.contains(OpenFlags::SQLITE_OPEN_URI) {
        format!("file:{path}?immutable=1")
    } else {
        path.into_owned()
    };
    let connection = Connection::open_with_flags_and_vfs(path, flags, door.name())
        .and_then(|connection| connection.busy_timeout(BUSY_TIMEOUT).map(|()| connection));
    Ok(Session {
        connection: connection.map_err(|error| refused(&error))?,
        reading,
        deadline: Arc::default(),
        place: Arc::clone(place),
    })
}

/// Restricts SQLite on a connection. Loads nothing of the file.
fn restrict(session: &mut Session) -> rusqlite::Result<()> {
    session.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    session.set_limit(Limit::SQLITE_LIMIT_LENGTH, LENGTH_BYTES_MAX)?;
    session.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    session.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // SQL in the file is never run, even if it is put there while the file is open.
    session.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    session.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    // Without it, a statement is recompiled whenever another value is bound: a third of a commit's
    // time.
    session.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let deadline = Arc::clone(&session.deadline);
    session.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || deadline.is_over()))
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    connection.execute_batch(&format!(
        "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{CACHE_KIB}; PRAGMA cell_size_check = ON;"
    ))
}

fn set_up_writer(
    connection: &Session,
    lock: &LockFile,
    durability: Durability,
) -> Result<(), StorageError> {
    let run = |sql: &str| {
        connection
            .execute_batch(sql)
            .map_err(|error| refused(&error))
    };
    {
        // Changing the mode of a new file needs exclusive access.
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
