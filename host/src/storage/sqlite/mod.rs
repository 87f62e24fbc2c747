//! The store in SQLite: the default one.
//!
//! One file in a granted directory, in write-ahead mode. Reads run in place on pooled connections
//! ([`read`]); commits queue and are written in batches ([`writer`], [`transaction`]); a thread
//! makes the checkpoints ([`checkpoint`], [`maintenance`]); processes queue at a lock file beside
//! it ([`lock`]). Every file is reached inside the directory and nowhere else ([`files`], [`vfs`]).
//! The schema and its reasons: `schema/`. Many stores, of which few are open: [`StorePool`].
//!
//! No domain rule lives here. The views `threads` and `budget_ledger` are for people with a
//! database shell; the program never reads them.

mod apply;
mod checkpoint;
mod connection;
mod directory_times;
mod error;
mod files;
mod lock;
mod maintenance;
#[cfg(not(target_os = "linux"))]
mod other_systems;
mod read;
mod schema;
mod schema_reader;
mod statements;
mod stores;
mod transaction;
mod vfs;
mod writer;

pub use stores::{LazyStore, StorePool, StorePoolOptions};

use std::sync::Arc;

use cap_std::fs::Dir;
use rusqlite::Connection;

use self::checkpoint::WriteAheadLog;
use self::connection::{ReadMode, check_before_open, check_readable, open_writer, walk_table};
use self::files::{FileIdentity, StoreFiles};
use self::lock::LockFile;
use self::maintenance::MaintenanceThread;
use self::read::ReaderPool;
use self::statements::StoreStatements;
use self::transaction::TransactionWriter;
use self::writer::CommitWriter;
use super::check::other_error;
use super::whole_store::{ListedStore, LogName};
use super::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StorageQuota, StoredRecord, check_commit, check_get, check_log, check_scan,
};

/// Bounds the memory that SQLite has in this process, for all stores together and for good: a later
/// call can only lower the bound. Nothing else bounds the memory that one row of a planted file
/// takes, because SQLite compares the rows of an index whole, whatever their length is, and no
/// limit of a connection forbids that. A call that needs more memory is refused with the code
/// `out-of-memory`. The owner of the process calls this: the command does, and a host of many
/// stores counts 8 MiB of cache for each connection.
///
/// # Errors
/// What SQLite says.
pub fn limit_process_memory(bytes_max: u32) -> Result<(), StorageError> {
    let limit = || {
        let connection = Connection::open_in_memory()?;
        let sql = format!("PRAGMA hard_heap_limit = {bytes_max}");
        connection.query_row(&sql, [], |_| Ok(()))
    };
    limit().map_err(|error| error::error_before_commit(&error))
}

/// Failures that a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitDurability {
    /// Loss of power.
    Full,
    /// The death of the process; loss of power may take the last commits, never a part of one.
    Normal,
}

/// Options of a store. There is no default: name a preset, then change what must differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Failures that a commit survives.
    pub durability: CommitDurability,
    /// Most bytes that the store may hold, `None` for as many as the disk has. Names and values are
    /// counted ([`super::StorageQuota`]), not the file. A file that was last written without a
    /// quota is counted once by the next opening that has one, which reads all of it; otherwise the
    /// count is stored in the file.
    pub quota_bytes: Option<u64>,
    /// Bytes above the quota that only closing commits may fill.
    pub closing_margin_bytes: u64,
}

impl SqliteOptions {
    /// For one person on their own machine: durable, no quota.
    pub const fn local() -> Self {
        let closing_margin_bytes = StorageQuota::CLOSING_MARGIN_BYTES;
        Self {
            durability: CommitDurability::Full,
            quota_bytes: None,
            closing_margin_bytes,
        }
    }

    /// For tenants that do not trust each other: durable, bounded.
    pub const fn strict() -> Self {
        Self {
            quota_bytes: Some(StorageQuota::STRICT_LIMIT_BYTES),
            ..Self::local()
        }
    }

    fn quota(&self) -> Option<StorageQuota> {
        let closing_margin_bytes = self.closing_margin_bytes;
        self.quota_bytes.map(|limit_bytes| StorageQuota {
            limit_bytes,
            closing_margin_bytes,
        })
    }
}

/// A store in a SQLite file; see the documentation of the module. Fields are dropped in order:
/// readers, then the writer, whose last connection removes the log.
#[derive(Debug)]
pub struct SqliteStore {
    readers: ReaderPool,
    /// `None` if the store can only be read.
    writer: Option<CommitWriter>,
    sql: Arc<StoreStatements>,
    place: Arc<StoreFiles>,
}

impl SqliteStore {
    /// Opens the store `name` in `dir`, and makes it if there is none. A store that cannot be
    /// written, because of its permissions or its file system, is opened for reading; its commits
    /// are refused with the code `read-only`.
    ///
    /// If a file is removed or replaced while the store is open, the next call and every later one
    /// return [`StorageError::Other`] with the code `replaced`; a commit under way returns
    /// [`StorageError::OutcomeUnknown`].
    ///
    /// # Errors
    /// [`StorageError::Other`] with the code `bad-name` (letters, digits, `.`, `_`, `-`, with a dot
    /// inside), `not-a-regular-file`, `hard-linked`, `foreign-database`, `newer-schema`,
    /// `sqlite-too-old`, `read-only` (there is no store or an older one, and it cannot be written),
    /// `network-file-system`, `no-write-ahead-log` or `unsupported-platform`; in all these cases an
    /// existing file is unchanged. A file that SQLite cannot open is `Unavailable`; a file that is
    /// no database, or a log without its file, is `Corrupt`.
    pub fn open(dir: &Dir, name: &str, options: SqliteOptions) -> Result<Self, StorageError> {
        let place = Arc::new(StoreFiles::new(dir, name)?);
        Self::open_checked(
            &place,
            &options,
            Arc::new(MaintenanceThread::new(None)),
            None,
        )
    }

    /// Opens the store at `place`; with `was`, it must still be the same file.
    fn open_checked(
        place: &Arc<StoreFiles>,
        options: &SqliteOptions,
        keeper: Arc<MaintenanceThread>,
        was: Option<FileIdentity>,
    ) -> Result<Self, StorageError> {
        if was.is_some() && place.file_identity()? != was {
            return Err(place.replaced_error());
        }
        place.checked_vfs()?;
        place.check_complete()?;
        let store = if place.is_writable() {
            check_before_open(place, ReadMode::Shared)?;
            match Self::open_writable(place, options, keeper, was.is_none()) {
                Err(StorageError::Other {
                    code: "read-only", ..
                }) => Self::open_readable(place, ReadMode::Shared)?,
                opened => opened?,
            }
        } else if place.has_log()? {
            Self::open_readable(place, ReadMode::Shared)?
        } else {
            Self::open_readable(place, ReadMode::Immutable)?
        };
        place.record_opened()?;
        if was.is_some() && place.file_identity()? != was {
            return Err(place.replaced_error());
        }
        Ok(store)
    }

    fn open_writable(
        place: &Arc<StoreFiles>,
        options: &SqliteOptions,
        keeper: Arc<MaintenanceThread>,
        make: bool,
    ) -> Result<Self, StorageError> {
        let sql = Arc::new(StoreStatements::new());
        let lock = LockFile::open(place)?;
        let connection = open_writer(place, &lock, options.durability, make)?;
        let quota = options.quota();
        let transactions =
            TransactionWriter::open(Arc::clone(place), connection, lock, Arc::clone(&sql), quota)?;
        let log = WriteAheadLog::new(Arc::clone(place), options.durability);
        Ok(Self {
            readers: ReaderPool::new(Arc::clone(place), ReadMode::Shared),
            writer: Some(CommitWriter::new(transactions, log, keeper)),
            sql,
            place: Arc::clone(place),
        })
    }

    fn open_readable(place: &Arc<StoreFiles>, reading: ReadMode) -> Result<Self, StorageError> {
        check_readable(place, reading)?;
        Ok(Self {
            readers: ReaderPool::new(Arc::clone(place), reading),
            writer: None,
            sql: Arc::new(StoreStatements::new()),
            place: Arc::clone(place),
        })
    }

    /// Runs `question` on the connection that writes, if it is free.
    fn query_writer_if_free<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StorageError> {
        self.place.check_unchanged()?;
        let writer = self.writer.as_ref();
        Ok(writer.and_then(|writer| writer.query_if_free(question)))
    }
}

/// Most keys that are read on the connection that writes: a commit that comes meanwhile waits for
/// them.
const QUICK_KEYS_MAX: usize = 8;

/// Most faults that [`SqliteStore::quick_check`] and [`SqliteStore::find_unreadable`] name: one is
/// enough to know.
const FAULTS_MAX: u32 = 10;

impl SqliteStore {
    /// The version of the format of an open store, from 1: opening brings an older file to it, and
    /// refuses a newer one. Read no file of an open store to learn it: closing a descriptor
    /// releases the locks of SQLite in the process.
    pub const fn format_version() -> usize {
        schema::newest_version()
    }

    /// Checks that the file is as SQLite wrote it: returns at most [`FAULTS_MAX`] sentences about
    /// damage, none if it is sound. Reads the whole file.
    ///
    /// # Errors
    /// If the file cannot be read, or is so damaged that SQLite reads no further.
    pub fn quick_check(&self) -> Result<Vec<String>, StorageError> {
        let found = self.readers.query(|connection| {
            let mut check = connection.prepare(&format!("PRAGMA quick_check({FAULTS_MAX})"))?;
            let rows = check.query_map([], |row| row.get::<_, String>(0))?;
            rows.collect::<rusqlite::Result<Vec<String>>>()
        })?;
        let sound = found.len() == 1 && found.first().is_some_and(|word| word == "ok");
        Ok(if sound { Vec::new() } else { found })
    }

    /// Names of records and entries whose values are no text, which this program never writes: at
    /// most [`FAULTS_MAX`]. Reads the whole file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn find_unreadable(&self) -> Result<Vec<String>, StorageError> {
        self.readers
            .query(|connection| read::find_unreadable(connection, FAULTS_MAX as usize))
    }
}

impl StorageBackend for SqliteStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        check_get(keys)?;
        let question = |connection: &Connection| read::read_items(connection, &self.sql, keys);
        if keys.len() <= QUICK_KEYS_MAX
            && let Some(items) = self.query_writer_if_free(question)?
        {
            return items;
        }
        self.readers.query(question)?
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        check_scan(collection, start, end, limit)?;
        let sql = self.sql.records(collection);
        self.readers.query(|connection| {
            read::read_page(connection, sql, collection, (start, end), limit, reverse)
        })
    }

    fn visit_names(
        &self,
        collection: &str,
        visit: &mut dyn FnMut(&str),
    ) -> Result<(), StorageError> {
        check_scan(collection, "", "", 1)?;
        let sql = self.sql.records(collection);
        self.readers
            .query(|connection| read::visit_names(connection, sql, collection, visit))
    }

    fn visit_records(
        &self,
        collection: &str,
        visit: &mut dyn FnMut(&str, Option<&str>),
    ) -> Result<(), StorageError> {
        check_scan(collection, "", "", 1)?;
        let sql = self.sql.records(collection);
        self.readers.query(|connection| {
            walk_table(connection, || {
                read::visit_records(connection, sql, collection, visit)
            })
        })
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        check_log(log, partition, limit)?;
        self.readers.query(|connection| {
            read::read_entries(connection, log, partition, start, limit, reverse)
        })
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        check_commit(ops)?;
        if ops.is_empty() {
            return Ok(CommitOutcome::Committed);
        }
        let Some(writer) = &self.writer else {
            return Err(other_error(
                "read-only",
                "the store cannot be written, only read",
            ));
        };
        writer.commit(ops, closing)
    }
}

impl ListedStore for SqliteStore {
    fn list_collections(&self) -> Result<Vec<String>, StorageError> {
        self.readers.query(read::read_collection_names)
    }

    fn list_logs(&self, after: Option<&LogName>) -> Result<Vec<LogName>, StorageError> {
        self.readers
            .query(|connection| read::read_log_names(connection, after))
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::super::RecordExpectation;
    use super::statements::{
        ENTRY_FIRST, ENTRY_ID, ENTRY_NEXT, LINES_UP, PARTITION_INSERT, USAGE_FORGET,
    };
    use super::*;
    use crate::authority::ProjectDir;

    fn step(store: &SqliteStore, at: u64) {
        let append = CommitOp::Append {
            log: "history".to_owned(),
            partition: "p".to_owned(),
            at,
            value: format!("{at}"),
        };
        let put = CommitOp::Put {
            key: RecordKey::new("head", "p"),
            expect: if at == 1 {
                RecordExpectation::Absent
            } else {
                RecordExpectation::Version(at - 1)
            },
            value: format!("{at}"),
        };
        assert_eq!(
            store.commit(&[put, append], false),
            Ok(CommitOutcome::Committed)
        );
        let lines = store.read_log("history", "p", at, 1, false).unwrap();
        assert_eq!(lines.len(), 1);
    }

    /// Symptom: a commit took three times as long as the same rows by hand. Cause: the planner
    /// looked at bound values, so each binding of another value recompiled a statement. Fix: a plan
    /// that does not depend on values.
    #[test]
    fn statements_are_compiled_once() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads_dir_or_create().expect("made");
        let store = SqliteStore::open(&threads, "registry.db", SqliteOptions::local()).unwrap();
        (1..=10).for_each(|at| step(&store, at));
        let compiled_again = |connection: &Connection, sql: &str| {
            let statement = connection.prepare_cached(sql)?;
            assert!(
                statement.get_status(StatementStatus::Run) > 0,
                "never run: {sql}"
            );
            Ok(statement.get_status(StatementStatus::RePrepare))
        };
        let head = store.sql.records("head");
        for sql in [ENTRY_ID, ENTRY_NEXT, &head.update] {
            let again = store.query_writer_if_free(|connection| compiled_again(connection, sql));
            assert_eq!(again, Ok(Some(0)), "{sql}");
        }
        let again = store
            .readers
            .query(|connection| compiled_again(connection, LINES_UP));
        assert_eq!(again, Ok(0), "{LINES_UP}");
    }

    /// Symptom: adding an entry took as long as replacing two records. Cause: the INSERT read its
    /// own table, so SQLite copied what it selected into a temporary one first. Fix: the row id is
    /// looked up before. Covers each statement of a turn's commit without a quota.
    #[test]
    fn no_statement_of_a_commit_makes_a_temporary_table() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads_dir_or_create().expect("made");
        let store = SqliteStore::open(&threads, "registry.db", SqliteOptions::local()).unwrap();
        let temporary_tables = |connection: &Connection, sql: &str| {
            let mut explained = connection.prepare(&format!("EXPLAIN {sql}"))?;
            let parameters = vec![1; explained.parameter_count()];
            let steps = explained.query_map(rusqlite::params_from_iter(parameters), |row| {
                row.get::<_, String>(1)
            })?;
            let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>()?;
            assert!(steps.len() > 5, "{sql}: {steps:?}");
            Ok(steps.iter().filter(|step| *step == "OpenEphemeral").count())
        };
        let head = store.sql.records("head");
        let records = [&head.update, &head.insert, &head.upsert, &head.delete];
        let entries = [
            ENTRY_ID,
            ENTRY_NEXT,
            ENTRY_FIRST,
            PARTITION_INSERT,
            USAGE_FORGET,
        ];
        for sql in records.into_iter().map(String::as_str).chain(entries) {
            let found = store.query_writer_if_free(|connection| temporary_tables(connection, sql));
            assert_eq!(found, Ok(Some(0)), "{sql}");
        }
    }

    /// Symptom: a read of a malicious file held a thread of the pool after its call had ended.
    /// Cause: no statement was interrupted. Fix: it ends at the deadline of the call. Covers a
    /// reader and the connection that writes.
    #[test]
    fn statements_end_at_the_deadline_of_the_call() {
        use super::super::deadline::serve_until;
        use std::time::{Duration, Instant};
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads_dir_or_create().expect("made");
        let store = SqliteStore::open(&threads, "registry.db", SqliteOptions::local()).unwrap();
        let forever = |connection: &Connection| {
            let sql = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) \
                       SELECT max(n) FROM r";
            connection.query_row(sql, [], |row| row.get::<_, i64>(0))
        };
        let until = || Instant::now() + Duration::from_millis(20);
        let read = serve_until(until(), || store.readers.query(forever)).unwrap_err();
        assert!(read.retry_unchanged(), "{read}");
        assert_eq!(
            serve_until(until(), || store.query_writer_if_free(forever)),
            Ok(None)
        );
        step(&store, 1);
    }
}
