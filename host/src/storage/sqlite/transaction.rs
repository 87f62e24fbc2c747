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

use super::super::{Op, Outcome, Quota, StorageError};
use super::apply::{Applied, apply, judge};
use super::connection::Session;
use super::error::{commit_failed, refused};
use super::files::Place;
use super::lock::LockFile;
use super::read::number;
use super::statements::{
    BEGIN_WRITE, COMMIT, RELEASE, ROLLBACK, ROLLBACK_TO, SAVEPOINT, Statements, USAGE_FORGET,
    USAGE_GET, USAGE_PUT, usage_count,
};

/// The outcome of one commit.
pub(super) type Answer = Result<Outcome, StorageError>;

/// One commit, as a member of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) ops: &'a [Op],
    pub(super) closing: bool,
}

/// Source of commits that join while a transaction is being written.
pub(super) trait Late {
    /// Takes in new commits; returns the number of all so far.
    fn take(&mut self) -> usize;

    /// The commit at `index` of those taken in.
    fn member(&self, index: usize) -> Option<Member<'_>>;
}

/// A batch that no other commit joins.
struct Nobody;

impl Late for Nobody {
    fn take(&mut self) -> usize {
        0
    }

    fn member(&self, _: usize) -> Option<Member<'_>> {
        None
    }
}

/// The writing end of a store.
#[derive(Debug)]
pub(super) struct Transactions {
    place: Arc<Place>,
    lock: LockFile,
    work: Work,
}

#[derive(Debug)]
struct Work {
    connection: Session,
    sql: Arc<Statements>,
    quota: Option<Quota>,
}

/// The stage at which a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Statement,
    Commit,
}

#[derive(Debug)]
struct Failure {
    stage: Stage,
    error: StorageError,
}

impl Failure {
    fn of_statement(error: &rusqlite::Error) -> Self {
        Self {
            stage: Stage::Statement,
            error: refused(error),
        }
    }

    fn of_commit(error: &rusqlite::Error) -> Self {
        Self {
            stage: Stage::Commit,
            error: commit_failed(error),
        }
    }
}

impl Transactions {
    /// Opens the writing end. Counts the bytes in use, if there is a quota and the file does not
    /// store them.
    pub(super) fn open(
        place: Arc<Place>,
        connection: Session,
        lock: LockFile,
        sql: Arc<Statements>,
        quota: Option<Quota>,
    ) -> Result<Self, StorageError> {
        let work = Work {
            connection,
            sql,
            quota,
        };
        let stored = work.connection.ask(|_| work.stored_use())?;
        if quota.is_some() && stored.is_none() {
            let _turn = lock.acquire()?;
            work.transaction(|| work.used().map(Some))
                .map_err(|failure| failure.error)?;
        }
        Ok(Self { place, lock, work })
    }

    /// Runs `question` between two transactions; `None` if it fails.
    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        self.work.roll_back();
        let answer = self.work.connection.ask(question);
        self.work.roll_back();
        answer.ok()
    }

    /// Commits a member and those that join in time; returns their outcomes in order. An error if
    /// no commit is possible now.
    pub(super) fn run(
        &self,
        first: Member<'_>,
        late: &mut dyn Late,
    ) -> Result<Vec<Answer>, StorageError> {
        let _turn = self.lock.acquire()?;
        self.place.check_unchanged()?;
        let mut answers = self.run_members(first, late)?;
        let committed = |answer: &Answer| matches!(answer, Ok(Outcome::Committed));
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
        first: Member<'_>,
        late: &mut dyn Late,
    ) -> Result<Vec<Answer>, StorageError> {
        let failure = match self.work.together(first, late) {
            Ok(answers) => return Ok(answers),
            Err(failure) => failure,
        };
        // No commit joined, so no other pays; or the transaction could not begin, and another
        // attempt would wait as long for each member.
        let Some(second) = late.member(0).filter(|_| failure.stage != Stage::Begin) else {
            return match failure.stage {
                Stage::Begin => Err(failure.error),
                Stage::Statement | Stage::Commit => Ok(vec![Err(failure.error)]),
            };
        };
        tracing::debug!(error = %failure.error, "a batch failed; its members run alone");
        let mut answers = Vec::new();
        let others = (1..).map_while(|index| late.member(index));
        for member in [first, second].into_iter().chain(others) {
            match self.work.together(member, &mut Nobody) {
                Ok(mut answer) => answers.append(&mut answer),
                Err(failure) if failure.stage == Stage::Begin && answers.is_empty() => {
                    return Err(failure.error);
                }
                Err(failure) => answers.push(Err(failure.error)),
            }
        }
        Ok(answers)
    }
}

impl Work {
    /// Commits a member and those that join.
    fn together(&self, first: Member<'_>, late: &mut dyn Late) -> Result<Vec<Answer>, Failure> {
        let clean = self.transaction(|| {
            let before = self.used()?;
            let Some(mut used) = self.clean(&first, before)? else {
                return Ok(None);
            };
            let mut answers = vec![Ok(Outcome::Committed)];
            self.join(late, &mut used, &mut answers)?;
            self.keep_used(before, used)?;
            Ok(Some(answers))
        })?;
        if let Some(answers) = clean {
            return Ok(answers);
        }
        let answers = self.transaction(|| {
            let before = self.used()?;
            let mut used = before;
            let mut answers = vec![self.member(&first, &mut used)?];
            self.join(late, &mut used, &mut answers)?;
            self.keep_used(before, used)?;
            Ok(Some(answers))
        })?;
        Ok(answers.unwrap_or_default())
    }

    /// Does the members that have come, and those that come meanwhile, until no more come.
    fn join(
        &self,
        late: &mut dyn Late,
        used: &mut Option<u64>,
        answers: &mut Vec<Answer>,
    ) -> rusqlite::Result<()> {
        let mut done = 0;
        while late.take() > done {
            while let Some(member) = late.member(done) {
                answers.push(self.member(&member, used)?);
                done += 1;
            }
        }
        Ok(())
    }

    /// Does one member without a savepoint, and returns the bytes in use; `None` if it must be
    /// rolled back.
    fn clean(
        &self,
        member: &Member<'_>,
        before: Option<u64>,
    ) -> rusqlite::Result<Option<Option<u64>>> {
        let Applied::Done(growth) =
            apply(&self.connection, &self.sql, member.ops, before.is_some())?
        else {
            return Ok(None);
        };
        Ok(self.admit(before, growth, member.closing).ok())
    }

    /// Does one member inside a savepoint, or rolls it back and returns the reason.
    fn member(&self, member: &Member<'_>, used: &mut Option<u64>) -> rusqlite::Result<Answer> {
        self.execute(SAVEPOINT)?;
        let answer = match apply(&self.connection, &self.sql, member.ops, used.is_some())? {
            Applied::Done(growth) => match self.admit(*used, growth, member.closing) {
                Ok(after) => {
                    *used = after;
                    Ok(Outcome::Committed)
                }
                Err(error) => {
                    self.execute(ROLLBACK_TO)?;
                    Err(error)
                }
            },
            Applied::Refused(reason) => {
                self.execute(ROLLBACK_TO)?;
                judge(&self.connection, &self.sql, member.ops, reason)?
            }
        };
        self.execute(RELEASE)?;
        Ok(answer)
    }

    /// Runs `body` in a transaction, which is rolled back if `body` fails or returns `None`.
    fn transaction<T>(
        &self,
        body: impl FnOnce() -> rusqlite::Result<Option<T>>,
    ) -> Result<Option<T>, Failure> {
        self.roll_back();
        if let Err(error) = self.connection.begin_checked(BEGIN_WRITE) {
            self.roll_back();
            let stage = Stage::Begin;
            return Err(Failure { stage, error });
        }
        let done = match body() {
            Ok(Some(done)) => {
                let committed = self.execute(COMMIT);
                committed
                    .map(|()| Some(done))
                    .map_err(|error| Failure::of_commit(&error))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(Failure::of_statement(&error)),
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
    fn used(&self) -> rusqlite::Result<Option<u64>> {
        if self.quota.is_none() {
            return Ok(None);
        }
        let used = self.stored_use()?;
        used.map_or_else(|| self.recount(), Ok).map(Some)
    }

    /// Bytes in use, if the file stores them.
    fn stored_use(&self) -> rusqlite::Result<Option<u64>> {
        self.connection
            .prepare_cached(USAGE_GET)?
            .query_row([], |row| number(row, 0))
            .optional()
    }

    fn keep_used(&self, before: Option<u64>, after: Option<u64>) -> rusqlite::Result<()> {
        match after {
            Some(after) if before != Some(after) => self.put_used(after),
            Some(_) => Ok(()),
            None => self.execute(USAGE_FORGET),
        }
    }

    /// Counts every byte in use. Reads the whole file, so it is done only where the file does not
    /// store the total.
    fn recount(&self) -> rusqlite::Result<u64> {
        let used = self
            .connection
            .query_row(&usage_count(), [], |row| number(row, 0))?;
        self.put_used(used)?;
        Ok(used)
    }

    fn put_used(&self, used: u64) -> rusqlite::Result<()> {
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
    use super::super::super::{Expect, Key};
    use super::super::connection::{Reading, check_first, open_writer};
    use super::super::{Durability, read};
    use super::*;
    use crate::authority::Project;

    fn ops(name: &str, value: &str) -> Vec<Op> {
        let put = Op::Put {
            key: Key::new("head", name),
            expect: Expect::Absent,
            value: value.to_owned(),
        };
        let append = Op::Append {
            log: "history".to_owned(),
            partition: name.to_owned(),
            at: 1,
            value: value.to_owned(),
        };
        vec![put, append]
    }

    /// Members that all join at once.
    struct Comers(Vec<Vec<Op>>);

    impl Late for Comers {
        fn take(&mut self) -> usize {
            self.0.len()
        }

        fn member(&self, index: usize) -> Option<Member<'_>> {
            let ops = self.0.get(index)?;
            let closing = false;
            Some(Member { ops, closing })
        }
    }

    fn transactions(temp: &tempfile::TempDir) -> Transactions {
        let project = Project::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads().expect("made");
        let place = Arc::new(Place::new(&threads, "a.db").expect("a name"));
        check_first(&place, Reading::Shared).expect("nothing is there");
        let lock = LockFile::open(&place).expect("opened");
        let session = open_writer(&place, &lock, Durability::Normal, true).expect("made");
        let sql = Arc::new(Statements::new());
        Transactions::open(place, session, lock, sql, None).expect("opened")
    }

    /// A member whose statement ends the transaction of the whole batch (as a full disk does) must
    /// not take the others with it: each is run again alone, and only the one is refused.
    #[test]
    fn a_member_that_ends_the_transaction_fails_alone() {
        for action in ["ROLLBACK", "ABORT", "FAIL"] {
            let temp = tempfile::TempDir::new().expect("a temporary directory");
            let transactions = transactions(&temp);
            let session = &transactions.work.connection;
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
            transactions
                .place
                .remember_schema(cookie.expect("a number"));
            let batch = [("a", "good"), ("b", "poison"), ("c", "good")];
            let [first, others @ ..] = batch.map(|(name, value)| ops(name, value));
            let first = Member {
                ops: &first,
                closing: false,
            };
            let mut comers = Comers(others.to_vec());
            let answers = transactions.run(first, &mut comers).expect("begun");
            assert_eq!(answers[0], Ok(Outcome::Committed), "{action}");
            let refused = matches!(answers[1], Err(StorageError::Corrupt { .. }));
            assert!(refused, "{action}: {answers:?}");
            assert_eq!(answers[2], Ok(Outcome::Committed), "{action}");
            for (name, value) in batch {
                let sql = &transactions.work.sql;
                let found = read::item(session, sql, &Key::new("head", name)).expect("read");
                assert_eq!(found.is_some(), value == "good", "{name} ({action})");
            }
        }
    }
}
