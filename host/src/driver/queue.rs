//! The queue of runs for a thread, and the record of lost runs, for all drivers of one process over
//! one store.
//!
//! Within a process, the waiters of a thread are served first come, first served. Between processes
//! there is no order: the first in each process polls until the lease is free. A waiter that leaves
//! gives up its place.

use super::kept_conversations::KeptConversations;
use super::{StopLevel, StopReceiver};
use crate::authority::{HolderLock, HolderState};
use crate::wit;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;
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
pub(crate) struct DriverShared {
    nonce: Box<str>,
    runs: AtomicU64,
    queues: SleepingMutex<HashMap<String, ThreadQueue>>,
    lost: SleepingMutex<VecDeque<LostRun>>,
    pub(super) kept: KeptConversations,
    /// The lock file of the process, kept as long as there is a driver or a run: it shows that the
    /// holders live.
    lock: Option<HolderLock>,
}

/// The runs that want one thread.
struct ThreadQueue {
    head: Arc<Semaphore>,
    members: usize,
}

/// A run that is no longer performed, though its thread may still have its lease. It is forgotten
/// only if its last call had ended before it was closed, because that call may be the start itself.
/// It also stays while a held thread cannot be read: that thread may be its own.
struct LostRun {
    holder: String,
    /// Dead once no call of the run is under way.
    calls: Weak<()>,
}

impl DriverShared {
    pub(crate) fn new(nonce: &str) -> Arc<Self> {
        Self::with_nonce_and_lock(nonce.into(), None)
    }

    /// With a lock file, which stays behind if there are lost runs that were not recovered.
    pub(crate) fn with_holder_lock(lock: HolderLock) -> Arc<Self> {
        Self::with_nonce_and_lock(lock.nonce().into(), Some(lock))
    }

    fn with_nonce_and_lock(nonce: Box<str>, lock: Option<HolderLock>) -> Arc<Self> {
        Arc::new(Self {
            nonce,
            runs: AtomicU64::new(0),
            queues: SleepingMutex::default(),
            lost: SleepingMutex::default(),
            kept: KeptConversations::default(),
            lock,
        })
    }

    /// A holder name for one more run. Unless released, dropping it records the run as lost.
    pub(super) fn new_run_lease(self: &Arc<Self>) -> RunLease {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        RunLease {
            shared: Arc::clone(self),
            holder: format!("{}/{run}", self.nonce),
            call_marker: Arc::new(()),
            held: false,
        }
    }

    /// Joins the queue of a thread; `None` if the queue is full.
    pub(super) fn join_queue(self: &Arc<Self>, thread: &str) -> Option<QueuePlace> {
        let thread = thread.to_ascii_lowercase();
        let mut lines = self.queues.lock();
        let line = lines.entry(thread.clone()).or_insert_with(|| ThreadQueue {
            head: Arc::new(Semaphore::new(1)),
            members: 0,
        });
        if line.members > WAITERS_MAX {
            return None;
        }
        line.members += 1;
        let turn = Arc::clone(&line.head);
        drop(lines);
        Some(QueuePlace {
            shared: Arc::clone(self),
            thread,
            head: turn,
            permit: None,
        })
    }

    /// Holders of lost runs, each with true if no call of the run is under way any more.
    pub(crate) fn lost_runs(&self) -> Vec<(String, bool)> {
        let lost = self.lost.lock();
        let seen = |lost: &LostRun| (lost.holder.clone(), lost.calls.strong_count() == 0);
        lost.iter().map(seen).collect()
    }

    pub(super) fn is_lost(&self, holder: &str) -> bool {
        self.lost.lock().iter().any(|lost| lost.holder == holder)
    }

    /// State of the process of a holder.
    pub(super) fn holder_state(&self, holder: &str) -> HolderState {
        let life = self.lock.as_ref().map(|lock| lock.holder_state(holder));
        match life {
            Some(Ok(life)) => life,
            Some(Err(error)) => {
                tracing::warn!(holder, %error, "a lock file cannot be looked at");
                HolderState::Unknown
            }
            None => HolderState::Unknown,
        }
    }

    /// Forgets lost runs that were recovered after their last call had ended: they have no lease.
    pub(crate) fn forget_lost(&self, recovered: &[String]) {
        self.lost
            .lock()
            .retain(|lost| !recovered.contains(&lost.holder));
    }
}

impl Drop for DriverShared {
    fn drop(&mut self) {
        let held = !self.lost.get_mut().is_empty();
        if let Some(lock) = self.lock.take_if(|_| held) {
            lock.abandon();
        }
    }
}

/// The holder name of a run, and whether it may have a lease.
pub(super) struct RunLease {
    shared: Arc<DriverShared>,
    pub(super) holder: String,
    /// Cloned by every call of the run.
    pub(super) call_marker: Arc<()>,
    held: bool,
}

impl RunLease {
    /// Marks that from now on the thread may have a lease under this name.
    pub(super) fn mark_held(&mut self) {
        self.held = true;
    }

    /// Marks that the thread has no lease under this name any more.
    pub(super) fn release(&mut self) {
        self.held = false;
    }
}

impl Drop for RunLease {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let mut lost = self.shared.lost.lock();
        if lost.len() >= LOST_MAX {
            lost.pop_front();
        }
        lost.push_back(LostRun {
            holder: std::mem::take(&mut self.holder),
            calls: Arc::downgrade(&self.call_marker),
        });
    }
}

/// A place in the queue of a thread. The run at the head stays there until its place is dropped.
pub(super) struct QueuePlace {
    shared: Arc<DriverShared>,
    thread: String,
    head: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl QueuePlace {
    /// Moves to the head of the queue if it is free.
    pub(super) fn try_reach_head(&mut self) -> bool {
        self.permit = Arc::clone(&self.head).try_acquire_owned().ok();
        self.permit.is_some()
    }

    /// Waits for the head of the queue.
    pub(super) async fn reach_head(&mut self) {
        // The semaphore is never closed; it serves in the order of asking.
        self.permit = Arc::clone(&self.head).acquire_owned().await.ok();
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.permit = None;
        let mut lines = self.shared.queues.lock();
        if let Some(line) = lines.get_mut(&self.thread) {
            line.members -= 1;
            if line.members == 0 {
                lines.remove(&self.thread);
            }
        }
    }
}

/// Deadline and stop of a wait in the queue.
pub(super) struct WaitDeadline<'a> {
    pub(super) thread: &'a str,
    pub(super) wait: Duration,
    over: Pin<Box<tokio::time::Sleep>>,
    stop: StopReceiver,
}

/// Reason why a wait ended in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// The deadline passed.
    Late,
    /// The run was stopped.
    Stopped,
}

impl<'a> WaitDeadline<'a> {
    pub(super) fn new(thread: &'a str, wait: Duration, stop: &StopReceiver) -> Self {
        Self {
            thread,
            wait,
            over: Box::pin(tokio::time::sleep(wait)),
            stop: stop.clone(),
        }
    }

    /// Waits for `done`, until the deadline or a stop.
    pub(super) async fn wait_for<T>(
        &mut self,
        done: impl Future<Output = T>,
    ) -> Result<T, WaitEnd> {
        tokio::select! {
            biased;
            () = self.stop.wait_for_level(StopLevel::Cancel) => Err(WaitEnd::Stopped),
            done = done => Ok(done),
            () = &mut self.over => Err(WaitEnd::Late),
        }
    }
}

/// Polls for a lease: less and less often, with jitter.
pub(super) struct LeasePolls {
    wait: Duration,
}

impl LeasePolls {
    pub(super) fn new() -> Self {
        Self { wait: POLL_FIRST }
    }

    pub(super) async fn wait_for_next(&mut self) {
        tokio::time::sleep(self.wait / 2 + crate::tenant::jitter(self.wait / 2)).await;
        self.wait = (self.wait * 2).min(POLL_LAST);
    }
}

/// Text for an error: `is held by X until T`, or that the holder changed.
pub(super) fn describe_holder(lease: Option<&wit::Lease>) -> String {
    match lease {
        Some(lease) => format!(
            "is held by {} until {}",
            lease.holder,
            crate::documents::format_rfc3339(lease.expiry)
        ),
        None => "changes hands, and others were first".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn waiters_are_served_in_order_and_may_leave() {
        let shared = DriverShared::new("n");
        let mut first = shared.join_queue("A").expect("there is room");
        first.reach_head().await;
        let mut places: Vec<QueuePlace> = (0..4).filter_map(|_| shared.join_queue("a")).collect();
        let mut waits: Vec<_> = places
            .iter_mut()
            .map(|place| Box::pin(place.reach_head()))
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
        assert!(shared.queues.lock().is_empty(), "nobody is left");
    }

    #[test]
    fn queue_is_bounded() {
        let shared = DriverShared::new("n");
        let places: Vec<QueuePlace> = (0..=WAITERS_MAX)
            .filter_map(|_| shared.join_queue("t"))
            .collect();
        assert_eq!(places.len(), WAITERS_MAX + 1, "one and those who wait");
        assert!(shared.join_queue("T").is_none());
        assert!(shared.join_queue("other").is_some());
        drop(places);
        assert!(shared.join_queue("t").is_some());
    }

    #[test]
    fn a_run_is_lost_until_it_is_recovered_after_its_last_call() {
        let shared = DriverShared::new("n");
        drop(shared.new_run_lease());
        assert!(shared.lost_runs().is_empty(), "it held nothing");
        let mut holding = shared.new_run_lease();
        holding.mark_held();
        let (holder, call) = (holding.holder.clone(), Arc::clone(&holding.call_marker));
        drop(holding);
        assert_eq!(shared.lost_runs(), [(holder.clone(), false)]);
        drop(call);
        assert_eq!(shared.lost_runs(), [(holder.clone(), true)]);
        assert!(shared.is_lost(&holder));
        shared.forget_lost(&[holder]);
        assert!(shared.lost_runs().is_empty());
        let mut ended = shared.new_run_lease();
        ended.mark_held();
        ended.release();
        drop(ended);
        assert!(shared.lost_runs().is_empty());
    }

    /// Symptom: the lost runs of a process that ended were recovered only after their leases
    /// expired. Cause: the lock file was removed with the process. Fix: the file stays, unlocked,
    /// as that of a killed process.
    #[test]
    fn a_lock_file_stays_for_runs_that_are_lost() {
        use crate::authority::{HolderState, ProjectDir, holder_state};
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads_dir_or_create().expect("made");
        for (lost, expected) in [(true, HolderState::Dead), (false, HolderState::Unknown)] {
            let lock = HolderLock::acquire(&threads).expect("taken");
            let nonce = lock.nonce().to_owned();
            let shared = DriverShared::with_holder_lock(lock);
            let mut holding = shared.new_run_lease();
            holding.mark_held();
            let now = || holder_state(&threads, &nonce).expect("readable");
            drop(shared);
            assert_eq!(now(), HolderState::Lives, "a run keeps the lock");
            if !lost {
                holding.release();
            }
            drop(holding);
            assert_eq!(now(), expected);
        }
    }

    #[test]
    fn lost_runs_are_bounded() {
        let shared = DriverShared::new("n");
        for _ in 0..=LOST_MAX {
            shared.new_run_lease().mark_held();
        }
        let lost = shared.lost_runs();
        assert_eq!(lost.len(), LOST_MAX);
        assert_eq!(lost[0].0, "n/2", "the oldest is forgotten");
    }
}
