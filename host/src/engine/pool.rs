//! A bounded pool of threads for component calls. Threads start when they are needed and end when
//! they are idle.
//!
//! Each tenant has a *lane*. Lanes with a startable call are served round-robin, so that a tenant
//! with a thousand calls delays another's by one call a thread, not by a thousand. A lane runs a
//! bounded number of calls at once and queues a bounded number. A call's time counts from asking.
//! When it passes, the caller is answered; a call that still waits is then dropped, while a running
//! one stays in its lane until it returns.
//!
//! A thread that lowered its priority cannot raise it again: from then on it serves the lanes of
//! the low class. It ends as soon as there is nothing to do, or its place is needed. A quarter of
//! the places is never used for the low class.

use super::priority;
pub(crate) use super::queue::Lane;
use super::queue::{Call, Queue, Side, Started, Ticket, Work};
use crate::limits::Limits;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(10);
/// Shorter idle time of a low-priority thread, whose place others may need.
const LOW_IDLE: Duration = Duration::from_millis(50);
/// Stack for the host's own code in a call: imports, down to the database.
const HOST_STACK_BYTES: usize = 2 << 20;
/// A stack size that no system can give: a thread with it cannot be started.
#[cfg(test)]
pub(super) const STACK_BYTES_REFUSED: usize = 1 << 50;

/// Reason why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The pool was closed, or the call panicked.
    Abandoned,
    /// There is no thread to run it on, and none can be started.
    NoThread,
    /// Too many calls of the lane wait.
    QueueFull,
    /// The call's time has passed.
    TimeOver,
}

/// A bounded pool of threads with fair queues; see the documentation of the module.
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Mutex<Queue>,
    ready: Condvar,
    low_ready: Condvar,
    limits: Limits,
}

struct Slot<T>(Mutex<Option<oneshot::Sender<Result<T, NoAnswer>>>>);

impl<T> Slot<T> {
    fn answer(&self, answer: Result<T, NoAnswer>) {
        let caller = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(caller) = caller {
            // The caller may be gone.
            let _ = caller.send(answer);
        }
    }
}

impl<T: Send> Ticket for Slot<T> {
    fn expire(&self) {
        self.answer(Err(NoAnswer::TimeOver));
    }
}

impl Pool {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            inner: Arc::new(Inner {
                queue: Mutex::new(Queue::new(limits)),
                ready: Condvar::new(),
                low_ready: Condvar::new(),
                limits: *limits,
            }),
        }
    }

    /// A lane for a new tenant.
    pub(crate) fn lane(&self) -> Lane {
        self.inner.lock().lane()
    }

    /// Runs a call, passing it its deadline. Dropping the future does not stop it.
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

    /// Answers the callers whose time has passed, returns lanes from the low class, and starts
    /// missing threads.
    pub(crate) fn tend(&self) {
        let now = Instant::now();
        let mut dropped = Vec::new();
        for (call, work) in self.inner.overdue(now) {
            call.ticket.expire();
            dropped.extend(work);
        }
        if !dropped.is_empty() {
            // The work may own the last reference to a tenant, down to a store that closes: the
            // ticker does not wait for that. If no thread can be had, the work is dropped here.
            let _ = std::thread::Builder::new().spawn(move || drop(dropped));
        }
        let mut queue = self.inner.lock();
        queue.raise(now);
        for side in [Side::Normal, Side::Low] {
            self.inner.serve(&mut queue, side);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.lock().closed = true;
        self.inner.ready.notify_all();
        self.inner.low_ready.notify_all();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, call: Call, work: Work) -> Result<(), NoAnswer> {
        let mut queue = self.lock();
        let side = queue.side(call.lane);
        let number = match queue.push(call, work, self.limits.calls_queued_max) {
            Ok(number) => number,
            Err(refused) => {
                // The work may take long to drop: not while the queue is locked.
                drop(queue);
                drop(refused);
                return Err(NoAnswer::QueueFull);
            }
        };
        self.serve(&mut queue, side);
        if queue.threads() == 0 {
            let withdrawn = queue.withdraw(number);
            drop(queue);
            drop(withdrawn);
            return Err(NoAnswer::NoThread);
        }
        Ok(())
    }

    /// Wakes a thread for a class that has a startable call, or starts the missing threads.
    fn serve(self: &Arc<Self>, queue: &mut Queue, side: Side) {
        let half = queue.half(side);
        if half.startable == 0 {
            return;
        }
        let missing = half.startable.saturating_sub(half.idle);
        let full = (0..missing).any(|_| !self.start_thread(queue, side));
        // Without a free place, a thread of the other class may make room.
        if side == Side::Normal || full {
            self.ready.notify_one();
        }
        if side == Side::Low || full {
            self.low_ready.notify_one();
        }
    }

    /// True if a thread was started.
    fn start_thread(self: &Arc<Self>, queue: &mut Queue, side: Side) -> bool {
        let refused = side == Side::Low && queue.low.threads >= self.low_threads_max();
        if queue.closed || refused || queue.threads() >= self.limits.call_threads_max {
            return false;
        }
        let inner = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("threadkeep-call-{}", queue.threads()))
            .stack_size(HOST_STACK_BYTES + self.limits.stack_bytes_max)
            .spawn(move || {
                if side == Side::Low {
                    priority::lower();
                }
                inner.work(side);
            });
        let half = queue.half(side);
        half.threads += usize::from(started.is_ok());
        // Until it begins it counts as one that waits for a call.
        half.idle += usize::from(started.is_ok());
        started.is_ok()
    }

    /// Most threads of the low class: however many tenants compute, others find a place.
    fn low_threads_max(&self) -> usize {
        (self.limits.call_threads_max * 3 / 4).max(1)
    }

    /// Removes the calls whose time has passed, with their work if they still wait. The caller
    /// drops the work when the queue is unlocked, because it may own the last reference to a
    /// tenant, down to a store that closes.
    fn overdue(&self, now: Instant) -> Vec<(Call, Option<Work>)> {
        let mut overdue = Vec::new();
        let mut queue = self.lock();
        while let Some((&number, first)) = queue.calls.first_key_value()
            && first.deadline <= now
        {
            overdue.extend(queue.withdraw(number));
        }
        overdue
    }

    fn work(self: &Arc<Self>, mut side: Side) {
        self.lock().half(side).idle -= 1;
        while let Some(Started { number, lane, work }) = self.next(&mut side) {
            priority::begin();
            // A panic drops the sender of the answer, which tells the caller; the thread lives on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let stopped = priority::take_blame();
            let mut queue = self.lock();
            let answered = queue.calls.remove(&number);
            queue.change(lane, |state| state.running -= 1);
            let stepped_back = side == Side::Normal && priority::is_low();
            if stepped_back {
                step_down(&mut queue, &mut side);
            }
            if stepped_back || stopped {
                queue.lower(lane, Instant::now());
            }
            drop(queue);
            drop(answered);
        }
        let mut queue = self.lock();
        queue.half(side).threads -= 1;
        for side in [Side::Normal, Side::Low] {
            self.serve(&mut queue, side);
        }
    }

    /// The next call; `None` when the thread is to end.
    fn next(&self, side: &mut Side) -> Option<Started> {
        let mut queue = self.lock();
        loop {
            let full = queue.threads() >= self.limits.call_threads_max;
            let place_needed = full && queue.normal.lacks_threads();
            let too_many = queue.low.threads > self.low_threads_max();
            if *side == Side::Low && (place_needed || too_many) {
                return None;
            }
            if let Some(started) = queue.take(*side) {
                return Some(started);
            }
            let room = queue.low.threads < self.low_threads_max();
            if full && room && *side == Side::Normal && queue.low.lacks_threads() {
                step_down(&mut queue, side);
                drop(queue);
                priority::lower();
                queue = self.lock();
                continue;
            }
            if queue.closed {
                return None;
            }
            let timed_out;
            (queue, timed_out) = self.wait(queue, *side);
            if timed_out && queue.half(*side).startable == 0 {
                return None;
            }
        }
    }

    /// Waits for a call; true if none came within the idle time.
    fn wait<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        side: Side,
    ) -> (MutexGuard<'a, Queue>, bool) {
        let (ready, most) = match side {
            Side::Normal => (&self.ready, IDLE),
            Side::Low => (&self.low_ready, LOW_IDLE),
        };
        queue.half(side).idle += 1;
        let (mut queue, waited) = ready
            .wait_timeout(queue, most)
            .unwrap_or_else(PoisonError::into_inner);
        queue.half(side).idle -= 1;
        (queue, waited.timed_out())
    }
}

/// Moves a thread from the normal to the low class.
fn step_down(queue: &mut Queue, side: &mut Side) {
    queue.normal.threads -= 1;
    queue.low.threads += 1;
    *side = Side::Low;
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
