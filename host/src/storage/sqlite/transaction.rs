//! Transactions: one commit, and those that join it before its COMMIT.
//!
//! Each member has a savepoint, so that a refused member undoes only itself; the first is tried
//! without one, which is the usual case and the fastest. No caller is answered before COMMIT. When
//! the transaction fails as a whole, each member is run again alone, so no member pays for another.
//!
//! Only prepared statements are kept between transactions: the id of a log is queried each time (an
//! index look-up), so a savepoint that is rolled back or another process that trims a log leaves
//! nothing stale here.
//!
//! The bytes in use are stored in the file, exactly or not at all: a transaction with a quota
//! writes the new total, one without a quota removes it, because it does not count. A missing total
//! is counted once.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::super::{CommitOp, CommitOutcome, StorageError, StorageQuota};
use super::apply::{ApplyOutcome, apply_ops, find_refusal};
use super::connection::SqliteSession;
use super::error::{error_before_commit, error_of_commit};
use super::files::StoreFiles;
use super::lock::LockFile;
use super::read::read_number;
use super::statements::{
    BEGIN_WRITE, COMMIT, RELEASE, ROLLBACK, ROLLBACK_TO, SAVEPOINT, StoreStatements, USAGE_FORGET,
    USAGE_GET, USAGE_PUT, usage_count_sql,
};

/// The outcome of one commit.
pub(super) type CommitResult = Result<CommitOutcome, StorageError>;

/// One commit, as a member of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchMember<'a> {
    pub(super) ops: &'a [CommitOp],
    pub(super) closing: bool,
}

/// Source of commits that join while a transaction is being written.
pub(super) trait BatchSource {
    /// Takes in new commits; returns the number of all so far.
    fn take_new(&mut self) -> usize;

    /// The commit at `index` of those taken in.
    fn member(&self, index: usize) -> Option<BatchMember<'_>>;
}

/// A batch that no other commit joins.
struct EmptyBatch;

impl BatchSource for EmptyBatch {
    fn take_new(&mut self) -> usize {
        0
    }

    fn member(&self, _: usize) -> Option<BatchMember<'_>> {
        None
    }
}

/// The writing end of a store.
#[derive(Debug)]
pub(super) struct TransactionWriter {
    place: Arc<StoreFiles>,
    lock: LockFile,
    executor: BatchExecutor,
}

#[derive(Debug)]
struct BatchExecutor {
    connection: SqliteSession,
    sql: Arc<StoreStatements>,
    quota: Option<StorageQuota>,
}

/// The stage at which a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureStage {
    Begin,
    Statement,
    Commit,
}

#[derive(Debug)]
struct TransactionFailure {
    stage: FailureStage,
    error: StorageError,
}

impl TransactionFailure {
    fn from_statement(error: &rusqlite::Error) -> Self {
        Self {
            stage: FailureStage::Statement,
            error: error_before_commit(error),
        }
    }

    fn from_commit(error: &rusqlite::Error) -> Self {
        Self {
            stage: FailureStage::Commit,
            error: error_of_commit(error),
        }
    }
}

impl TransactionWriter {
    /// Opens the writing end. Counts the bytes in use, if there is a quota and the file does not
    /// store them.
    pub(super) fn open(
        place: Arc<StoreFiles>,
        connection: SqliteSession,
        lock: LockFile,
        sql: Arc<StoreStatements>,
        quota: Option<StorageQuota>,
    ) -> Result<Self, StorageError> {
        let work = BatchExecutor {
            connection,
            sql,
            quota,
        };
        let stored = work.connection.query(|_| work.stored_used_bytes())?;
        if quota.is_some() && stored.is_none() {
            let _turn = lock.acquire()?;
            work.run_transaction(|| work.used_bytes().map(Some))
                .map_err(|failure| failure.error)?;
        }
        Ok(Self {
            place,
            lock,
            executor: work,
        })
    }

    /// Runs `question` between two transactions; `None` if it fails.
    pub(super) fn query<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        self.executor.roll_back();
        let answer = self.executor.connection.query(question);
        self.executor.roll_back();
        answer.ok()
    }

    /// Commits a member and those that join in time; returns their outcomes in order. An error if
    /// no commit is possible now.
    pub(super) fn run_batch(
        &self,
        first: BatchMember<'_>,
        late: &mut dyn BatchSource,
    ) -> Result<Vec<CommitResult>, StorageError> {
        let _turn = self.lock.acquire()?;
        self.place.check_unchanged()?;
        let mut answers = self.run_members(first, late)?;
        let committed = |answer: &CommitResult| matches!(answer, Ok(CommitOutcome::Committed));
        if answers.iter().any(committed)
            && let Err(error) = self.place.check_unchanged()
        {
            // The commit may be in a file that is no longer at its name.
            let message = error.to_string();
            let unknown = || {
                Err(StorageError::OutcomeUnknown {
                    message: message.clone(),
                })
            };
            answers
                .iter_mut()
                .filter(|answer| committed(answer))
                .for_each(|answer| *answer = unknown());
        }
        Ok(answers)
    }

    fn run_members(
        &self,
        first: BatchMember<'_>,
        late: &mut dyn BatchSource,
    ) -> Result<Vec<CommitResult>, StorageError> {
        let failure = match self.executor.commit_together(first, late) {
            Ok(answers) => return Ok(answers),
            Err(failure) => failure,
        };
        // No commit joined, so no other pays; or the transaction could not begin, and another
        // attempt would wait as long for each member.
        let Some(second) = late
            .member(0)
            .filter(|_| failure.stage != FailureStage::Begin)
        else {
            return match failure.stage {
                FailureStage::Begin => Err(failure.error),
                FailureStage::Statement | FailureStage::Commit => Ok(vec![Err(failure.error)]),
            };
        };
        tracing::debug!(error = %failure.error, "a batch failed; its members run alone");
        let mut answers = Vec::new();
        let others = (1..).map_while(|index| late.member(index));
        for member in [first, second].into_iter().chain(others) {
            match self.executor.commit_together(member, &mut EmptyBatch) {
                Ok(mut answer) => answers.append(&mut answer),
                Err(failure) if failure.stage == FailureStage::Begin && answers.is_empty() => {
                    return Err(failure.error);
                }
                Err(failure) => answers.push(Err(failure.error)),
            }
        }
        Ok(answers)
    }
}

impl BatchExecutor {
    /// Commits a member and those that join.
    fn commit_together(
        &self,
        first: BatchMember<'_>,
        late: &mut dyn BatchSource,
    ) -> Result<Vec<CommitResult>, TransactionFailure> {
        let clean = self.run_transaction(|| {
            let before = self.used_bytes()?;
            let Some(mut used) = self.run_without_savepoint(&first, before)? else {
                return Ok(None);
            };
            let mut answers = vec![Ok(CommitOutcome::Committed)];
            self.run_joining_members(late, &mut used, &mut answers)?;
            self.store_used_bytes(before, used)?;
            Ok(Some(answers))
        })?;
        if let Some(answers) = clean {
            return Ok(answers);
        }
        let answers = self.run_transaction(|| {
            let before = self.used_bytes()?;
            let mut used = before;
            let mut answers = vec![self.run_in_savepoint(&first, &mut used)?];
            self.run_joining_members(late, &mut used, &mut answers)?;
            self.store_used_bytes(before, used)?;
            Ok(Some(answers))
        })?;
        Ok(answers.unwrap_or_default())
    }

    /// Does the members that have come, and those that come meanwhile, until no more come.
    fn run_joining_members(
        &self,
        late: &mut dyn BatchSource,
        used: &mut Option<u64>,
        answers: &mut Vec<CommitResult>,
    ) -> rusqlite::Result<()> {
        let mut done = 0;
        while late.take_new() > done {
            while let Some(member) = late.member(done) {
                answers.push(self.run_in_savepoint(&member, used)?);
                done += 1;
            }
        }
        Ok(())
    }

    /// Does one member without a savepoint, and returns the bytes in use; `None` if it must be
    /// rolled back.
    fn run_without_savepoint(
        &self,
        member: &BatchMember<'_>,
        before: Option<u64>,
    ) -> rusqlite::Result<Option<Option<u64>>> {
        let ApplyOutcome::Done(growth) =
            apply_ops(&self.connection, &self.sql, member.ops, before.is_some())?
        else {
            return Ok(None);
        };
        Ok(self.admit(before, growth, member.closing).ok())
    }

    /// Does one member inside a savepoint, or rolls it back and returns the reason.
    fn run_in_savepoint(
        &self,
        member: &BatchMember<'_>,
        used: &mut Option<u64>,
    ) -> rusqlite::Result<CommitResult> {
        self.execute(SAVEPOINT)?;
        let answer = match apply_ops(&self.connection, &self.sql, member.ops, used.is_some())? {
            ApplyOutcome::Done(growth) => match self.admit(*used, growth, member.closing) {
                Ok(after) => {
                    *used = after;
                    Ok(CommitOutcome::Committed)
                }
                Err(error) => {
                    self.execute(ROLLBACK_TO)?;
                    Err(error)
                }
            },
            ApplyOutcome::Refused(reason) => {
                self.execute(ROLLBACK_TO)?;
                find_refusal(&self.connection, &self.sql, member.ops, reason)?
            }
        };
        self.execute(RELEASE)?;
        Ok(answer)
    }

    /// Runs `body` in a transaction, which is rolled back if `body` fails or returns `None`.
    fn run_transaction<T>(
        &self,
        body: impl FnOnce() -> rusqlite::Result<Option<T>>,
    ) -> Result<Option<T>, TransactionFailure> {
        self.roll_back();
        if let Err(error) = self.connection.begin_checked(BEGIN_WRITE) {
            self.roll_back();
            let stage = FailureStage::Begin;
            return Err(TransactionFailure { stage, error });
        }
        let done = match body() {
            Ok(Some(done)) => {
                let committed = self.execute(COMMIT);
                committed
                    .map(|()| Some(done))
                    .map_err(|error| TransactionFailure::from_commit(&error))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(TransactionFailure::from_statement(&error)),
        };
        self.roll_back();
        done
    }

    /// Rolls back a transaction that is still open: SQLite ends some by itself when they fail.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute(ROLLBACK)
        {
            tracing::warn!(%error, "a transaction could not be rolled back");
        }
    }

    fn admit(
        &self,
        used: Option<u64>,
        growth: i64,
        closing: bool,
    ) -> Result<Option<u64>, StorageError> {
        match (self.quota, used) {
            (Some(quota), Some(used)) => quota.admit(used, growth, closing).map(Some),
            (Some(_) | None, _) => Ok(None),
        }
    }

    /// Bytes in use, if there is a quota.
    fn used_bytes(&self) -> rusqlite::Result<Option<u64>> {
        if self.quota.is_none() {
            return Ok(None);
        }
        let used = self.stored_used_bytes()?;
        used.map_or_else(|| self.recount_used_bytes(), Ok).map(Some)
    }

    /// Bytes in use, if the file stores them.
    fn stored_used_bytes(&self) -> rusqlite::Result<Option<u64>> {
        self.connection
            .prepare_cached(USAGE_GET)?
            .query_row([], |row| read_number(row, 0))
            .optional()
    }

    fn store_used_bytes(&self, before: Option<u64>, after: Option<u64>) -> rusqlite::Result<()> {
        match after {
            Some(after) if before != Some(after) => self.write_used_bytes(after),
            Some(_) => Ok(()),
            None => self.execute(USAGE_FORGET),
        }
    }

    /// Counts every byte in use. Reads the whole file, so it is done only where the file does not
    /// store the total.
    fn recount_used_bytes(&self) -> rusqlite::Result<u64> {
        let used = self
            .connection
            .query_row(&usage_count_sql(), [], |row| read_number(row, 0))?;
        self.write_used_bytes(used)?;
        Ok(used)
    }

    fn write_used_bytes(&self, used: u64) -> rusqlite::Result<()> {
        let used = i64::try_from(used).unwrap_or(i64::MAX);
        self.connection
            .prepare_cached(USAGE_PUT)?
            .execute([used])
            .map(drop)
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{RecordExpectation, RecordKey};
    use super::super::connection::{ReadMode, check_before_open, open_writer};
    use super::super::{CommitDurability, read};
    use super::*;
    use crate::authority::ProjectDir;

    fn ops(name: &str, value: &str) -> Vec<CommitOp> {
        let put = CommitOp::Put {
            key: RecordKey::new("head", name),
            expect: RecordExpectation::Absent,
            value: value.to_owned(),
        };
        let append = CommitOp::Append {
            log: "history".to_owned(),
            partition: name.to_owned(),
            at: 1,
            value: value.to_owned(),
        };
        vec![put, append]
    }

    /// Members that all join at once.
    struct FixedBatch(Vec<Vec<CommitOp>>);

    impl BatchSource for FixedBatch {
        fn take_new(&mut self) -> usize {
            self.0.len()
        }

        fn member(&self, index: usize) -> Option<BatchMember<'_>> {
            let ops = self.0.get(index)?;
            let closing = false;
            Some(BatchMember { ops, closing })
        }
    }

    fn transactions(temp: &tempfile::TempDir) -> TransactionWriter {
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads_dir_or_create().expect("made");
        let place = Arc::new(StoreFiles::new(&threads, "a.db").expect("a name"));
        check_before_open(&place, ReadMode::Shared).expect("nothing is there");
        let lock = LockFile::open(&place).expect("opened");
        let session = open_writer(&place, &lock, CommitDurability::Normal, true).expect("made");
        let sql = Arc::new(StoreStatements::new());
        TransactionWriter::open(place, session, lock, sql, None).expect("opened")
    }

    /// A member whose statement ends the transaction of the whole batch (as a full disk does) must
    /// not take the others with it: each is run again alone, and only the one is refused.
    #[test]
    fn member_that_ends_transaction_fails_alone() {
        for action in ["ROLLBACK", "ABORT", "FAIL"] {
            let temp = tempfile::TempDir::new().expect("a temporary directory");
            let transactions = transactions(&temp);
            let session = &transactions.executor.connection;
            // One poisoned entry exists already, and a second one ends the statement, or all of the
            // transaction. No file with such a table would be opened, so it is made through our own
            // connection and recorded as checked.
            let poison = format!(
                "DROP TABLE entry; \
                 CREATE TABLE entry (id INTEGER PRIMARY KEY, value TEXT NOT NULL, \
                 mark TEXT AS (CASE value WHEN 'poison' THEN value END) \
                 UNIQUE ON CONFLICT {action}) STRICT; \
                 INSERT INTO entry (id, value) VALUES (1, 'poison')"
            );
            session.execute_batch(&poison).expect("planted");
            let cookie = session.query_row("PRAGMA schema_version", [], |row| row.get(0));
            transactions.place.record_schema(cookie.expect("a number"));
            let batch = [("a", "good"), ("b", "poison"), ("c", "good")];
            let [first, others @ ..] = batch.map(|(name, value)| ops(name, value));
            let first = BatchMember {
                ops: &first,
                closing: false,
            };
            let mut comers = FixedBatch(others.to_vec());
            let answers = transactions.run_batch(first, &mut comers).expect("begun");
            assert_eq!(answers[0], Ok(CommitOutcome::Committed), "{action}");
            let refused = matches!(answers[1], Err(StorageError::Corrupt { .. }));
            assert!(refused, "{action}: {answers:?}");
            assert_eq!(answers[2], Ok(CommitOutcome::Committed), "{action}");
            for (name, value) in batch {
                let sql = &transactions.executor.sql;
                let found =
                    read::read_item(session, sql, &RecordKey::new("head", name)).expect("read");
                assert_eq!(found.is_some(), value == "good", "{name} ({action})");
            }
        }
    }
}
