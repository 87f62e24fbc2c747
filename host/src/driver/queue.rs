//! The queue of runs for a thread, and the record of lost runs, for all drivers of one process over
//! one store.
//!
//! Within a process, the waiters of a thread are served first come, first served. Between processes
//! there is no order: the first in each process polls until the lease is free. A waiter that leaves
//! gives up its place.

use super::{Stop, StopLevel};
use crate::authority::{HolderLock, Life};
use crate::wit;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Behaviour of a run whose thread already has a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBusy {
    /// Fails with `busy` at once, with holder and expiry.
    #[default]
    Refuse,
    /// Waits in the queue, and for room among the runs that the policy allows, at most this long.
    Queue(Duration),
}

/// Most runs that wait for one thread in one process, besides the current one. Each keeps its
/// message in memory, and a run with so many before it is better refused than left waiting.
pub const WAITERS_MAX: usize = 256;

/// Most lost runs that are recorded. The thread of a forgotten one is closed once its process has
/// ended.
pub const LOST_MAX: usize = 65_536;

/// The first pause before a lease is asked for again; it doubles, with jitter.
const POLL_FIRST: Duration = Duration::from_millis(20);
/// The longest such pause: as often as a run checks for a cancel.
const POLL_LAST: Duration = Duration::from_secs(1);

/// State that the drivers of one process share over one store.
pub(crate) struct Shared {
    nonce: Box<str>,
    runs: AtomicU64,
    lines: Mutex<HashMap<String, Line>>,
    lost: Mutex<VecDeque<Lost>>,
    /// The lock file of the process, kept as long as there is a driver or a run: it shows that the
    /// holders live.
    lock: Option<HolderLock>,
}

/// The runs that want one thread.
struct Line {
    turn: Arc<Semaphore>,
    members: usize,
}

/// A run that is no longer performed, though its thread may still have its lease.
struct Lost {
    holder: String,
    /// Dead once no call of the run is under way.
    calls: Weak<()>,
}

impl Shared {
    pub(crate) fn new(nonce: &str) -> Arc<Self> {
        Self::over(nonce.into(), None)
    }

    /// With a lock file, which stays behind if there are lost runs that were not recovered.
    pub(crate) fn under(lock: HolderLock) -> Arc<Self> {
        Self::over(lock.nonce().into(), Some(lock))
    }

    fn over(nonce: Box<str>, lock: Option<HolderLock>) -> Arc<Self> {
        Arc::new(Self {
            nonce,
            runs: AtomicU64::new(0),
            lines: Mutex::default(),
            lost: Mutex::default(),
            lock,
        })
    }

    /// A holder name for one more run. Unless released, dropping it records the run as lost.
    pub(super) fn holding(self: &Arc<Self>) -> Holding {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        Holding {
            shared: Arc::clone(self),
            holder: format!("{}/{run}", self.nonce),
            calls: Arc::new(()),
            held: false,
        }
    }

    /// Joins the queue of a thread; `None` if the queue is full.
    pub(super) fn join(self: &Arc<Self>, thread: &str) -> Option<Place> {
        let thread = thread.to_ascii_lowercase();
        let mut lines = lock(&self.lines);
        let line = lines.entry(thread.clone()).or_insert_with(|| Line {
            turn: Arc::new(Semaphore::new(1)),
            members: 0,
        });
        if line.members > WAITERS_MAX {
            return None;
        }
        line.members += 1;
        let turn = Arc::clone(&line.turn);
        drop(lines);
        Some(Place {
            shared: Arc::clone(self),
            thread,
            turn,
            permit: None,
        })
    }

    /// Holders of lost runs, each with true if no call of the run is under way any more.
    pub(crate) fn lost(&self) -> Vec<(String, bool)> {
        let lost = lock(&self.lost);
        let seen = |lost: &Lost| (lost.holder.clone(), lost.calls.strong_count() == 0);
        lost.iter().map(seen).collect()
    }

    pub(super) fn is_lost(&self, holder: &str) -> bool {
        lock(&self.lost).iter().any(|lost| lost.holder == holder)
    }

    /// State of the process of a holder.
    pub(super) fn life(&self, holder: &str) -> Life {
        let life = self.lock.as_ref().map(|lock| lock.life(holder));
        match life {
            Some(Ok(life)) => life,
            Some(Err(error)) => {
                tracing::warn!(holder, %error, "a lock file cannot be looked at");
                Life::Unknown
            }
            None => Life::Unknown,
        }
    }

    /// Forgets lost runs that were recovered after their last call had ended: they have no lease.
    pub(crate) fn forget(&self, recovered: &[String]) {
        lock(&self.lost).retain(|lost| !recovered.contains(&lost.holder));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let lost = self.lost.get_mut();
        let held = !lost.unwrap_or_else(PoisonError::into_inner).is_empty();
        if let Some(lock) = self.lock.take_if(|_| held) {
            lock.leave();
        }
    }
}

/// The holder name of a run, and whether it may have a lease.
pub(super) struct Holding {
    shared: Arc<Shared>,
    pub(super) holder: String,
    /// Cloned by every call of the run.
    pub(super) calls: Arc<()>,
    held: bool,
}

impl Holding {
    /// Marks that from now on the thread may have a lease under this name.
    pub(super) fn may_hold(&mut self) {
        self.held = true;
    }

    /// Marks that the thread has no lease under this name any more.
    pub(super) fn release(&mut self) {
        self.held = false;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let mut lost = lock(&self.shared.lost);
        if lost.len() >= LOST_MAX {
            lost.pop_front();
        }
        lost.push_back(Lost {
            holder: std::mem::take(&mut self.holder),
            calls: Arc::downgrade(&self.calls),
        });
    }
}

/// A place in the queue of a thread. The run at the head stays there until its place is dropped.
pub(super) struct Place {
    shared: Arc<Shared>,
    thread: String,
    turn: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Moves to the head of the queue if it is free.
    pub(super) fn turn_at_once(&mut self) -> bool {
        self.permit = Arc::clone(&self.turn).try_acquire_owned().ok();
        self.permit.is_some()
    }

    /// Waits for the head of the queue.
    pub(super) async fn turn(&mut self) {
        // The semaphore is never closed; it serves in the order of asking.
        self.permit = Arc::clone(&self.turn).acquire_owned().await.ok();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permit = None;
        let mut lines = lock(&self.shared.lines);
        if let Some(line) = lines.get_mut(&self.thread) {
            line.members -= 1;
            if line.members == 0 {
                lines.remove(&self.thread);
            }
        }
    }
}

/// Deadline and stop of a wait in the queue.
pub(super) struct Patience<'a> {
    pub(super) thread: &'a str,
    pub(super) wait: Duration,
    over: Pin<Box<tokio::time::Sleep>>,
    stop: Stop,
}

/// Reason why a wait ended in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// The deadline passed.
    Late,
    /// The run was stopped.
    Stopped,
}

impl<'a> Patience<'a> {
    pub(super) fn new(thread: &'a str, wait: Duration, stop: &Stop) -> Self {
        Self {
            thread,
            wait,
            over: Box::pin(tokio::time::sleep(wait)),
            stop: stop.clone(),
        }
    }

    /// Waits for `done`, until the deadline or a stop.
    pub(super) async fn until<T>(&mut self, done: impl Future<Output = T>) -> Result<T, WaitEnd> {
        tokio::select! {
            biased;
            () = self.stop.reached(StopLevel::Cancel) => Err(WaitEnd::Stopped),
            done = done => Ok(done),
            () = &mut self.over => Err(WaitEnd::Late),
        }
    }
}

/// Polls for a lease: less and less often, with jitter.
pub(super) struct Polls {
    wait: Duration,
}

impl Polls {
    pub(super) fn new() -> Self {
        Self { wait: POLL_FIRST }
    }

    pub(super) async fn next(&mut self) {
        tokio::time::sleep(self.wait / 2 + crate::tenant::jitter(self.wait / 2)).await;
        self.wait = (self.wait * 2).min(POLL_LAST);
    }
}

/// Text for an error: `is held by X until T`, or that the holder changed.
pub(super) fn by_whom(lease: Option<&wit::Lease>) -> String {
    match lease {
        Some(lease) => format!(
            "is held by {} until {}",
            lease.holder,
            crate::documents::rfc3339(lease.expiry)
        ),
        None => "changes hands, and others were first".to_owned(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn turns_come_in_order_and_a_waiter_that_leaves_hurts_nobody() {
        let shared = Shared::new("n");
        let mut first = shared.join("A").expect("there is room");
        first.turn().await;
        let mut places: Vec<Place> = (0..4).filter_map(|_| shared.join("a")).collect();
        let mut waits: Vec<_> = places
            .iter_mut()
            .map(|place| Box::pin(place.turn()))
            .collect();
        for wait in &mut waits {
            assert_eq!(wait.now_or_never(), None, "they wait");
        }
        drop(waits.remove(1));
        drop(first);
        assert_eq!(
            waits.pop().map(|mut last| (&mut last).now_or_never()),
            Some(None)
        );
        assert_eq!((&mut waits[0]).now_or_never(), Some(()));
        drop(waits);
        drop(places);
        assert!(lock(&shared.lines).is_empty(), "nobody is left");
    }

    #[test]
    fn a_line_is_bounded() {
        let shared = Shared::new("n");
        let places: Vec<Place> = (0..=WAITERS_MAX).filter_map(|_| shared.join("t")).collect();
        assert_eq!(places.len(), WAITERS_MAX + 1, "one and those who wait");
        assert!(shared.join("T").is_none());
        assert!(shared.join("other").is_some());
        drop(places);
        assert!(shared.join("t").is_some());
    }

    #[test]
    fn a_run_is_lost_until_it_is_recovered_after_its_last_call() {
        let shared = Shared::new("n");
        drop(shared.holding());
        assert!(shared.lost().is_empty(), "it held nothing");
        let mut holding = shared.holding();
        holding.may_hold();
        let (holder, call) = (holding.holder.clone(), Arc::clone(&holding.calls));
        drop(holding);
        assert_eq!(shared.lost(), [(holder.clone(), false)]);
        drop(call);
        assert_eq!(shared.lost(), [(holder.clone(), true)]);
        assert!(shared.is_lost(&holder));
        shared.forget(&[holder]);
        assert!(shared.lost().is_empty());
        let mut ended = shared.holding();
        ended.may_hold();
        ended.release();
        drop(ended);
        assert!(shared.lost().is_empty());
    }

    /// Symptom: the lost runs of a process that ended were recovered only after their leases
    /// expired. Cause: the lock file was removed with the process. Fix: the file stays, unlocked,
    /// as that of a killed process.
    #[test]
    fn a_lock_file_stays_for_runs_that_are_lost() {
        use crate::authority::{Life, Project, life};
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = Project::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads().expect("made");
        for (lost, expected) in [(true, Life::Dead), (false, Life::Unknown)] {
            let lock = HolderLock::take(&threads).expect("taken");
            let nonce = lock.nonce().to_owned();
            let shared = Shared::under(lock);
            let mut holding = shared.holding();
            holding.may_hold();
            let now = || life(&threads, &nonce).expect("readable");
            drop(shared);
            assert_eq!(now(), Life::Lives, "a run keeps the lock");
            if !lost {
                holding.release();
            }
            drop(holding);
            assert_eq!(now(), expected);
        }
    }

    #[test]
    fn lost_runs_are_bounded() {
        let shared = Shared::new("n");
        for _ in 0..=LOST_MAX {
            shared.holding().may_hold();
        }
        let lost = shared.lost();
        assert_eq!(lost.len(), LOST_MAX);
        assert_eq!(lost[0].0, "n/2", "the oldest is forgotten");
    }
}
