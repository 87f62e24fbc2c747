//! A bounded pool of threads for component calls. Threads start when they are needed and end when they are idle.
//!
//! Each tenant has a *lane*. Lanes that have a call and may run one take turns, so that a tenant with a thousand calls
//! delays another's by one call a thread, not by a thousand. A lane runs a bounded number of calls at once and queues a
//! bounded number. A call's time counts from asking: when it passes, its caller is answered and a call that still waits
//! is forgotten, while one that runs stays in its lane until it comes back.

use super::priority;
use crate::limits::Limits;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// Stack for the host's own code in a call: imports, down to the database.
const HOST_STACK_BYTES: usize = 2 << 20;
/// A stack that no system has room for: a thread that asks for it cannot be started.
#[cfg(test)]
pub(super) const STACK_BYTES_REFUSED: usize = 1 << 50;

/// Why a call has no answer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The pool was closed, or the call panicked.
    Abandoned,
    /// There is no thread to run it on, and none can be started.
    NoThread,
    /// Too many calls of its lane wait.
    QueueFull,
    /// Its time has passed.
    TimeOver,
}

/// Whose call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lane(u64);

/// See the module's documentation.
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Mutex<Queue>,
    ready: Condvar,
    limits: Limits,
}

type Work = Box<dyn FnOnce() + Send>;

/// Answers a caller whose time has passed, unless it was answered before.
trait Ticket: Send + Sync {
    fn expire(&self);
}

struct Slot<T>(Mutex<Option<oneshot::Sender<Result<T, NoAnswer>>>>);

impl<T> Slot<T> {
    fn answer(&self, answer: Result<T, NoAnswer>) {
        let caller = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(caller) = caller {
            // Nobody may be waiting any more.
            let _ = caller.send(answer);
        }
    }
}

impl<T: Send> Ticket for Slot<T> {
    fn expire(&self) {
        self.answer(Err(NoAnswer::TimeOver));
    }
}

/// A call from asking to answering.
struct Call {
    lane: Lane,
    deadline: Instant,
    ticket: Arc<dyn Ticket>,
}

#[derive(Default)]
struct LaneState {
    /// By number of the call, so oldest first.
    waiting: BTreeMap<u64, Work>,
    running: usize,
    /// It stands in the queue's turns.
    listed: bool,
}

#[derive(Default)]
struct Queue {
    numbers: u64,
    /// Lanes with a call that waits or runs.
    lanes: HashMap<Lane, LaneState>,
    /// Lanes that have a call and may run one, in turn.
    turns: VecDeque<Lane>,
    /// By number: all have the same time, so the first is the first whose time passes.
    calls: BTreeMap<u64, Call>,
    /// Calls that wait for nothing but a thread.
    startable: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            inner: Arc::new(Inner {
                queue: Mutex::new(Queue::default()),
                ready: Condvar::new(),
                limits: *limits,
            }),
        }
    }

    /// A lane for a new tenant.
    pub(crate) fn lane(&self) -> Lane {
        Lane(self.inner.lock().number())
    }

    /// Run a call, which is told when its time passes. Dropping the future does not stop it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        call: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (caller, answered) = oneshot::channel();
        let slot = Arc::new(Slot(Mutex::new(Some(caller))));
        let deadline = Instant::now() + self.inner.limits.wall_time_max;
        let accepted = Call {
            lane,
            deadline,
            ticket: Arc::clone(&slot) as Arc<dyn Ticket>,
        };
        let work = Box::new(move || slot.answer(Ok(call(deadline))));
        self.inner.accept(accepted, work)?;
        answered.await.unwrap_or(Err(NoAnswer::Abandoned))
    }

    /// Answer the callers whose time has passed, and start threads in the place of those that stepped back.
    pub(crate) fn tend(&self) {
        for (call, work) in self.inner.overdue() {
            call.ticket.expire();
            drop(work);
        }
        let mut queue = self.inner.lock();
        while queue.startable > queue.idle && self.inner.start_thread(&mut queue) {}
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.lock().closed = true;
        self.inner.ready.notify_all();
    }
}

impl Queue {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Change a lane, and keep true what is said of it elsewhere.
    fn change<T>(
        &mut self,
        lane: Lane,
        running_max: usize,
        f: impl FnOnce(&mut LaneState) -> T,
    ) -> T {
        let state = self.lanes.entry(lane).or_default();
        let startable = |state: &LaneState| {
            let room = running_max.saturating_sub(state.running);
            state.waiting.len().min(room)
        };
        let before = startable(state);
        let result = f(state);
        let now = startable(state);
        self.startable = self.startable + now - before;
        if now > 0 && !state.listed {
            state.listed = true;
            self.turns.push_back(lane);
        }
        if state.waiting.is_empty() && state.running == 0 && !state.listed {
            self.lanes.remove(&lane);
        }
        result
    }

    /// Forgets a call, and its work if that waits still.
    fn withdraw(&mut self, number: u64, running_max: usize) -> Option<(Call, Option<Work>)> {
        let call = self.calls.remove(&number)?;
        let work = self.change(call.lane, running_max, |state| {
            state.waiting.remove(&number)
        });
        Some((call, work))
    }

    /// The next call in turn.
    fn take(&mut self, running_max: usize) -> Option<Started> {
        while let Some(lane) = self.turns.pop_front() {
            let taken = self.change(lane, running_max, |state| {
                state.listed = false;
                if state.running >= running_max {
                    return None;
                }
                let taken = state.waiting.pop_first();
                state.running += usize::from(taken.is_some());
                taken
            });
            if let Some((number, work)) = taken {
                return Some(Started { number, lane, work });
            }
        }
        None
    }
}

struct Started {
    number: u64,
    lane: Lane,
    work: Work,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, call: Call, work: Work) -> Result<(), NoAnswer> {
        let (running_max, queued_max) =
            (self.limits.calls_running_max, self.limits.calls_queued_max);
        let mut queue = self.lock();
        let lane = call.lane;
        let number = queue.number();
        let refused = queue.change(lane, running_max, |state| {
            let room = state.waiting.len() + state.running < running_max.saturating_add(queued_max);
            match room {
                true => {
                    state.waiting.insert(number, work);
                    None
                }
                false => Some(work),
            }
        });
        if refused.is_some() {
            // What a call holds may take long to drop: nobody waits for it.
            drop(queue);
            return Err(NoAnswer::QueueFull);
        }
        queue.calls.insert(number, call);
        if queue.startable > queue.idle {
            self.start_thread(&mut queue);
        }
        if queue.threads == 0 {
            let withdrawn = queue.withdraw(number, running_max);
            drop(queue);
            drop(withdrawn);
            return Err(NoAnswer::NoThread);
        }
        drop(queue);
        self.ready.notify_one();
        Ok(())
    }

    /// True if a thread was started.
    fn start_thread(self: &Arc<Self>, queue: &mut Queue) -> bool {
        if queue.closed || queue.threads >= self.limits.call_threads_max {
            return false;
        }
        let inner = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("threadkeep-call-{}", queue.threads))
            .stack_size(HOST_STACK_BYTES + self.limits.stack_bytes_max)
            .spawn(move || inner.work());
        queue.threads += usize::from(started.is_ok());
        started.is_ok()
    }

    /// Those whose time has passed, with their work if it waits still: it is dropped when the queue is free again,
    /// because it may hold the last of a tenant, down to a store that closes.
    fn overdue(&self) -> Vec<(Call, Option<Work>)> {
        let (now, running_max) = (Instant::now(), self.limits.calls_running_max);
        let mut overdue = Vec::new();
        let mut queue = self.lock();
        while let Some((&number, first)) = queue.calls.first_key_value()
            && first.deadline <= now
        {
            overdue.extend(queue.withdraw(number, running_max));
        }
        overdue
    }

    fn work(&self) {
        while let Some(Started { number, lane, work }) = self.next() {
            // A panic leaves the answer unsent, so that the caller hears of it; the thread lives on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let mut queue = self.lock();
            let answered = queue.calls.remove(&number);
            queue.change(lane, self.limits.calls_running_max, |state| {
                state.running -= 1;
            });
            let ends = priority::is_low();
            queue.threads -= usize::from(ends);
            drop(queue);
            drop(answered);
            if ends {
                return;
            }
        }
    }

    /// The next call; none when the thread is to end.
    fn next(&self) -> Option<Started> {
        let mut queue = self.lock();
        loop {
            if let Some(started) = queue.take(self.limits.calls_running_max) {
                return Some(started);
            }
            if queue.closed {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            let (woken, waited) = self
                .ready
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if waited.timed_out() && queue.startable == 0 {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
