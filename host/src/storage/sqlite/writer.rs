//! The queue of commits: group commit without a dedicated thread.
//!
//! A caller that comes when no commit is under way writes at once, on its own thread. A caller that
//! comes meanwhile queues. When the writer is done, the first in the queue writes. Everything that
//! has queued up joins the transaction that is being written, until its COMMIT begins. No caller
//! waits for a timer.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::super::{Op, StorageError};
use super::checkpoint::Log;
use super::keeper::Keeper;
use super::transaction::{Answer, Late, Member, Transactions};

/// Most commits in one transaction: measured, more than 64 gains nothing.
const BATCH_COMMITS_MAX: usize = 64;
/// Most bytes in one transaction, unless one commit is larger: bounds what is written in one go,
/// and so how long its members wait.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Most commits that wait: bounds the memory of their copies. Further ones are refused as
/// unavailable.
const QUEUE_COMMITS_MAX: usize = 1_024;
/// Most bytes that wait, for the same reason.
const QUEUE_BYTES_MAX: usize = 256 << 20;

/// The writing end of a store with its queue; see the documentation of the module.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Mutex<Queue>,
    transactions: Mutex<Transactions>,
    log: Arc<Log>,
    keeper: Arc<Keeper>,
}

#[derive(Debug, Default)]
struct Queue {
    /// True while a caller writes.
    busy: bool,
    waiting: VecDeque<Arc<Job>>,
    bytes: usize,
}

/// A commit that waits.
#[derive(Debug)]
struct Job {
    ops: Vec<Op>,
    closing: bool,
    bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
enum State {
    Waiting,
    /// The waiting thread is to write next.
    Leading,
    Answered(Answer),
}

impl Writer {
    pub(super) fn new(transactions: Transactions, log: Log, keeper: Arc<Keeper>) -> Self {
        Self {
            queue: Mutex::default(),
            transactions: Mutex::new(transactions),
            log: Arc::new(log),
            keeper,
        }
    }

    /// Commits `ops`, alone or with others.
    pub(super) fn commit(&self, ops: &[Op], closing: bool) -> Answer {
        if let Some(turn) = self.turn_if_free() {
            return turn.write(Member { ops, closing });
        }
        let job = Arc::new(Job::new(ops, closing));
        match self.enqueue(&job)? {
            Some(turn) => turn.write(Member { ops, closing }),
            None => match job.wait() {
                Some(answer) => answer,
                None => WriteTurn { writer: self }.write(job.member()),
            },
        }
    }

    /// Runs `question` on the connection that writes, which has the pages it wrote in its cache;
    /// `None` if it is busy or the question fails.
    pub(super) fn ask_if_free<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        let transactions = self.transactions.try_lock().ok()?;
        transactions.ask(question)
    }

    fn turn_if_free(&self) -> Option<WriteTurn<'_>> {
        let mut queue = self.queue();
        if queue.busy {
            return None;
        }
        queue.busy = true;
        Some(WriteTurn { writer: self })
    }

    /// Queues a job, unless the right to write has become free meanwhile.
    fn enqueue(&self, job: &Arc<Job>) -> Result<Option<WriteTurn<'_>>, StorageError> {
        let mut queue = self.queue();
        if !queue.busy {
            queue.busy = true;
            return Ok(Some(WriteTurn { writer: self }));
        }
        if queue.waiting.len() >= QUEUE_COMMITS_MAX || queue.bytes + job.bytes > QUEUE_BYTES_MAX {
            let message = format!("{} commits are waiting", queue.waiting.len());
            return Err(StorageError::Unavailable { message });
        }
        queue.bytes += job.bytes;
        queue.waiting.push_back(Arc::clone(job));
        Ok(None)
    }

    /// Commits a member and those of the queue that join it. The outcomes of the others are
    /// delivered when the second value is dropped.
    fn run(&self, first: Member<'_>) -> (Answer, Joined) {
        let transactions = self
            .transactions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut joined = Joined {
            jobs: Vec::new(),
            answers: Vec::new(),
        };
        let bytes = bytes_of(first.ops);
        let mut joining = Joining {
            queue: &self.queue,
            joined: &mut joined,
            bytes,
        };
        let answers = transactions.run(first, &mut joining);
        let bytes = joining.bytes;
        drop(transactions);
        let ops = joined.jobs.iter().map(|job| job.ops.len()).sum::<usize>() + first.ops.len();
        if self.log.note(ops, bytes) {
            self.keeper.carry(&self.log);
        }
        let mut answers = answers.unwrap_or_else(|error| {
            self.refuse_waiting(&error);
            vec![Err(error); joined.jobs.len() + 1]
        });
        joined.answers = answers.split_off(1.min(answers.len()));
        (answers.pop().unwrap_or_else(|| Err(unanswered())), joined)
    }

    /// Answers all waiting callers that no commit is possible now: they have waited as long, and
    /// would wait as long again.
    fn refuse_waiting(&self, error: &StorageError) {
        let mut queue = self.queue();
        while let Some(job) = queue.pop() {
            job.become_(State::Answered(Err(error.clone())));
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Before the connection that writes, which is then the last and removes the log.
        self.log.close();
    }
}

impl Queue {
    fn pop(&mut self) -> Option<Arc<Job>> {
        let job = self.waiting.pop_front()?;
        self.bytes -= job.bytes;
        Some(job)
    }
}

/// The right to write. When it ends, also by a panic, it passes to the first in the queue.
struct WriteTurn<'a> {
    writer: &'a Writer,
}

impl WriteTurn<'_> {
    /// Commits the caller's own commit, and others in the queue.
    fn write(self, own: Member<'_>) -> Answer {
        let (answer, joined) = self.writer.run(own);
        // The right to write ends before the others wake: the next leader may begin at once.
        drop(self);
        drop(joined);
        answer
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        let mut queue = self.writer.queue();
        match queue.pop() {
            Some(next) => next.become_(State::Leading),
            None => queue.busy = false,
        }
    }
}

/// Takes the commits that join a transaction from the queue.
struct Joining<'a> {
    queue: &'a Mutex<Queue>,
    joined: &'a mut Joined,
    /// Bytes of all members.
    bytes: usize,
}

impl Late for Joining<'_> {
    fn take(&mut self) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = &mut self.joined.jobs;
        while let Some(next) = queue.waiting.front()
            && jobs.len() + 1 < BATCH_COMMITS_MAX
            && self.bytes + next.bytes <= BATCH_BYTES_MAX
            && let Some(job) = queue.pop()
        {
            self.bytes += job.bytes;
            jobs.push(job);
        }
        jobs.len()
    }

    fn member(&self, index: usize) -> Option<Member<'_>> {
        self.joined.jobs.get(index).map(|job| job.member())
    }
}

/// Jobs that joined a transaction. When this is dropped, also by a panic, each gets its outcome.
struct Joined {
    jobs: Vec<Arc<Job>>,
    answers: Vec<Answer>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut answers = std::mem::take(&mut self.answers).into_iter();
        for job in &self.jobs {
            let answer = answers.next().unwrap_or_else(|| Err(unanswered()));
            job.become_(State::Answered(answer));
        }
    }
}

impl Job {
    fn new(ops: &[Op], closing: bool) -> Self {
        let state = Mutex::new(State::Waiting);
        Self {
            ops: ops.to_vec(),
            closing,
            bytes: bytes_of(ops),
            state,
            changed: Condvar::new(),
        }
    }

    fn member(&self) -> Member<'_> {
        Member {
            ops: &self.ops,
            closing: self.closing,
        }
    }

    /// Waits for the outcome, or for the right to write (`None`).
    fn wait(&self) -> Option<Answer> {
        let waiting = |state: &mut State| matches!(state, State::Waiting);
        let state = self
            .changed
            .wait_while(self.state(), waiting)
            .unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Answered(answer) => Some(answer.clone()),
            State::Waiting | State::Leading => None,
        }
    }

    fn become_(&self, state: State) {
        *self.state() = state;
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(ops: &[Op]) -> usize {
    let bytes = |op: &Op| match op {
        Op::Check { key, .. } | Op::Delete { key } => key.name.len(),
        Op::Put { key, value, .. } => key.name.len() + value.len(),
        Op::Append {
            partition, value, ..
        } => partition.len() + value.len(),
        Op::Trim { partition, .. } => partition.len(),
    };
    ops.iter().map(bytes).sum()
}

/// The error of a member whose writer panicked.
fn unanswered() -> StorageError {
    StorageError::OutcomeUnknown {
        message: "the writer ended without an answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Expect, Key, Outcome, Storage};
    use super::super::{SqliteOptions, SqliteStore};
    use super::*;
    use crate::authority::Project;

    fn put(name: &str) -> Vec<Op> {
        vec![Op::Put {
            key: Key::new("thread", name),
            expect: Expect::Absent,
            value: "1".to_owned(),
        }]
    }

    /// One more joins at each look, and nothing of those before is visible.
    struct Comers<'a> {
        store: &'a SqliteStore,
        ops: Vec<Vec<Op>>,
        come: usize,
    }

    impl Late for Comers<'_> {
        fn take(&mut self) -> usize {
            let page = self.store.scan("thread", "", "", 10, false);
            assert!(page.expect("read").items.is_empty(), "nothing is committed");
            self.come = (self.come + 1).min(self.ops.len());
            self.come
        }

        fn member(&self, index: usize) -> Option<Member<'_>> {
            let ops = self.ops[..self.come].get(index)?;
            Some(Member {
                ops,
                closing: false,
            })
        }
    }

    #[test]
    fn who_comes_before_the_commit_joins_it_and_is_answered_for_itself() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = Project::open_ambient(temp.path()).expect("it opens");
        let dir = project.threads().expect("made");
        let store = SqliteStore::open(&dir, "a.db", SqliteOptions::local()).expect("opened");
        let writer = store.writer.as_ref().expect("it can be written");
        let mut comers = Comers {
            store: &store,
            ops: vec![put("b"), put("a"), put("c")],
            come: 0,
        };
        let first = Member {
            ops: &put("a"),
            closing: false,
        };
        let transactions = writer.transactions.lock().expect("not poisoned");
        let answers = transactions.run(first, &mut comers).expect("begun");
        drop(transactions);
        let committed: Vec<bool> = answers
            .iter()
            .map(|answer| matches!(answer, Ok(Outcome::Committed)))
            .collect();
        assert_eq!(committed, [true, true, false, true], "{answers:?}");
        assert!(
            matches!(answers[2], Ok(Outcome::Conflict(_))),
            "{answers:?}"
        );
        let page = store.scan("thread", "", "", 10, false).expect("read");
        assert_eq!(page.items.len(), 3);
    }
}
