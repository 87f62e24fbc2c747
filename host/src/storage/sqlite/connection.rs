//! Opens connections of three kinds, with the settings that each needs, and begins their snapshots.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep_storage::locks::SleepingMutex;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::super::StorageError;
use super::super::check::other_error;
use super::super::deadline;
use super::CommitDurability;
use super::error::error_before_commit;
use super::files::StoreFiles;
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
/// Cache of a connection that walks a whole table, in KiB: it reads each page once.
const WALK_CACHE_KIB: u32 = 256;
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
pub(super) struct SqliteSession {
    connection: Connection,
    reading: ReadMode,
    deadline: Arc<StatementDeadline>,
    place: Arc<StoreFiles>,
}

/// The deadline at which the statements of a connection are interrupted.
#[derive(Debug, Default)]
struct StatementDeadline(SleepingMutex<Option<Instant>>);

impl StatementDeadline {
    fn set(&self, deadline: Option<Instant>) {
        *self.0.lock() = deadline;
    }

    fn is_over(&self) -> bool {
        let deadline = *self.0.lock();
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl SqliteSession {
    pub(super) fn place(&self) -> &Arc<StoreFiles> {
        &self.place
    }

    /// Runs `question` in one snapshot whose schema is checked. A statement that is not done at the
    /// deadline of the call is interrupted. After an error the session may be inside a transaction.
    pub(super) fn query<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        self.deadline.set(deadline::current_deadline());
        let answer = self.query_in_snapshot(question);
        self.deadline.set(None);
        answer
    }

    fn query_in_snapshot<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        self.begin_checked(BEGIN_READ)?;
        let answer = question(&self.connection).map_err(|error| error_before_commit(&error))?;
        self.execute(COMMIT)
            .map_err(|error| error_before_commit(&error))?;
        Ok(answer)
    }

    /// Begins a transaction with `begin` and checks that the schema, as it is in the transaction,
    /// is ours: no part of an unchecked schema is loaded.
    pub(super) fn begin_checked(&self, begin: &str) -> Result<(), StorageError> {
        for _ in 0..SCHEMA_TRIES {
            self.execute(begin)
                .map_err(|error| error_before_commit(&error))?;
            let cookie = self
                .schema_cookie()
                .map_err(|error| error_before_commit(&error))?;
            if self.place.is_schema_known(cookie)
                || schema::check_file(&self.place, self.reading)?.cookie == cookie
            {
                return Ok(());
            }
            self.execute(ROLLBACK)
                .map_err(|error| error_before_commit(&error))?;
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

impl Deref for SqliteSession {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for SqliteSession {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// The kind of connection for reading a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadMode {
    /// Other processes may write meanwhile: uses the shared memory.
    Shared,
    /// The directory cannot be written, so there is no shared memory, and no process can write the
    /// file through it.
    Immutable,
}

/// Refuses an old SQLite library and a foreign file, before anything is written.
pub(super) fn check_before_open(
    place: &Arc<StoreFiles>,
    reading: ReadMode,
) -> Result<(), StorageError> {
    let version = rusqlite::version_number();
    if version < SQLITE_VERSION_MIN {
        return Err(other_error(
            "sqlite-too-old",
            format!("SQLite {version} is older than {SQLITE_VERSION_MIN}"),
        ));
    }
    schema::check_file(place, reading).map(drop)
}

/// Opens the connection that writes. Makes a missing file if `make`, and migrates the file to the
/// newest version.
pub(super) fn open_writer(
    place: &Arc<StoreFiles>,
    lock: &LockFile,
    durability: CommitDurability,
    make: bool,
) -> Result<SqliteSession, StorageError> {
    if make {
        place.make_private()?;
    }
    let connection = open_with_pragmas(place, READ_WRITE, ReadMode::Shared)?;
    // SQLite opens a file without write permission for reading.
    if connection
        .is_readonly("main")
        .map_err(|error| error_before_commit(&error))?
    {
        return Err(other_error(
            "read-only",
            "the file of the store may not be written",
        ));
    }
    set_up_writer(&connection, lock, durability)?;
    Ok(connection)
}

/// Opens a connection that reads.
pub(super) fn open_reader(
    place: &Arc<StoreFiles>,
    reading: ReadMode,
) -> Result<SqliteSession, StorageError> {
    open_with_pragmas(place, reading.flags(), reading)
}

/// Opens the connection of the checkpoints.
pub(super) fn open_checkpointer(
    place: &Arc<StoreFiles>,
    durability: CommitDurability,
) -> Result<SqliteSession, StorageError> {
    let connection = open_with_pragmas(place, READ_WRITE, ReadMode::Shared)?;
    let set_up = || {
        connection.busy_timeout(CHECKPOINT_BUSY_TIMEOUT)?;
        connection.execute_batch(synchronous_pragma(durability))
    };
    set_up().map_err(|error| error_before_commit(&error))?;
    Ok(connection)
}

/// Checks that a file that can only be read has had all migrations.
pub(super) fn check_readable(
    place: &Arc<StoreFiles>,
    reading: ReadMode,
) -> Result<(), StorageError> {
    if !place.is_there()? {
        return Err(other_error(
            "read-only",
            "there is no store, and none can be made",
        ));
    }
    if schema::check_file(place, reading)?.version < schema::newest_version() {
        let message = "the store is of an older version; open it once where it can be written";
        return Err(other_error("read-only", message));
    }
    Ok(())
}

impl ReadMode {
    fn flags(self) -> OpenFlags {
        match self {
            Self::Shared => READ_ONLY,
            Self::Immutable => READ_ONLY.union(OpenFlags::SQLITE_OPEN_URI),
        }
    }
}

/// Runs `walk` with a small cache: a whole table would push what others read out of the large one.
pub(super) fn walk_table(
    connection: &Connection,
    walk: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let resize = |kib: u32| connection.execute_batch(&format!("PRAGMA cache_size = -{kib}"));
    resize(WALK_CACHE_KIB)?;
    let walked = walk();
    resize(CACHE_KIB)?;
    walked
}

/// Opens a connection without settings, for [`super::schema_reader`], which cannot change the file.
pub(super) fn open_without_pragmas(
    place: &Arc<StoreFiles>,
    reading: ReadMode,
) -> Result<SqliteSession, StorageError> {
    connect(place, reading.flags(), reading)
}

fn open_with_pragmas(
    place: &Arc<StoreFiles>,
    flags: OpenFlags,
    reading: ReadMode,
) -> Result<SqliteSession, StorageError> {
    let mut session = connect(place, flags, reading)?;
    restrict_connection(&mut session).map_err(|error| error_before_commit(&error))?;
    // Before anything that loads the schema.
    session.begin_checked(BEGIN_READ)?;
    session
        .execute(COMMIT)
        .and_then(|()| apply_pragmas(&session))
        .map_err(|error| error_before_commit(&error))?;
    Ok(session)
}

fn connect(
    place: &Arc<StoreFiles>,
    flags: OpenFlags,
    reading: ReadMode,
) -> Result<SqliteSession, StorageError> {
    let door = place.checked_vfs()?;
    let path = door.path().to_string_lossy();
    let path = if flags.contains(OpenFlags::SQLITE_OPEN_URI) {
        format!("file:{path}?immutable=1")
    } else {
        path.into_owned()
    };
    let connection = Connection::open_with_flags_and_vfs(path, flags, door.name())
        .and_then(|connection| connection.busy_timeout(BUSY_TIMEOUT).map(|()| connection));
    Ok(SqliteSession {
        connection: connection.map_err(|error| error_before_commit(&error))?,
        reading,
        deadline: Arc::default(),
        place: Arc::clone(place),
    })
}

/// Restricts SQLite on a connection. Loads nothing of the file.
fn restrict_connection(session: &mut SqliteSession) -> rusqlite::Result<()> {
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

fn apply_pragmas(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    connection.execute_batch(&format!(
        "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{CACHE_KIB}; PRAGMA cell_size_check = ON;"
    ))
}

fn set_up_writer(
    connection: &SqliteSession,
    lock: &LockFile,
    durability: CommitDurability,
) -> Result<(), StorageError> {
    let run = |sql: &str| {
        connection
            .execute_batch(sql)
            .map_err(|error| error_before_commit(&error))
    };
    {
        // Changing the mode of a new file needs exclusive access.
        let _turn = lock.acquire()?;
        run("PRAGMA page_size = 4096;")?;
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        });
        let mode = mode.map_err(|error| error_before_commit(&error))?;
        if mode != "wal" {
            return Err(other_error(
                "no-write-ahead-log",
                format!("the journal mode is {mode}"),
            ));
        }
    }
    run(synchronous_pragma(durability))?;
    run(&format!(
        "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {LOG_BYTES_KEPT};"
    ))?;
    schema::migrate(connection, lock)
}

fn synchronous_pragma(durability: CommitDurability) -> &'static str {
    match durability {
        CommitDurability::Full => "PRAGMA synchronous = FULL;",
        CommitDurability::Normal => "PRAGMA synchronous = NORMAL;",
    }
}
