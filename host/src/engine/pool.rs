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
//!
//! A caller may lend its own thread, which saves the two wake-ups of a call on the pool's. The call
//! counts as one of its lane; while others wait, or the lane is in the low class, or the thread has
//! too little stack, the pool serves it.
//!
//! No store has a thread of its own: a commit runs on the thread of the call that makes it. So the
//! round-robin order of lanes also shares the writers among tenants.

use super::priority::{self, LentCallMarks};
pub(crate) use super::queue::TenantLane;
use super::queue::{CallClosure, CallQueue, CallTicket, PriorityClass, QueuedCall, StartedCall};
use crate::limits::EngineLimits;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep_storage::locks::{MutexGuard, SleepingCondvar, SleepingMutex};
use tokio::sync::oneshot;

/// Time after which an idle thread ends.
const IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Shorter idle time of a low-priority thread, whose place others may need.
const LOW_IDLE_TIME_MAX: Duration = Duration::from_millis(50);
/// Stack for the host's own code in a call: imports, down to the database.
pub(super) const HOST_STACK_BYTES: usize = 2 << 20;
/// The same for a call on a lent thread: less than a thread of the pool has, so that a worker of
/// tokio, which has 2 MiB, can be lent.
const LENT_STACK_BYTES: usize = 1 << 20;
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
pub(crate) struct CallPool {
    inner: Arc<PoolInner>,
}

struct PoolInner {
    queue: SleepingMutex<CallQueue>,
    ready: SleepingCondvar,
    low_ready: SleepingCondvar,
    limits: EngineLimits,
}

/// The end of a call on a lent thread.
pub(crate) enum LentCall<T, F> {
    /// It ran.
    Answered(Result<T, NoAnswer>),
    /// It has to wait for a thread of the pool.
    GivenBack(F),
}

struct AnswerSlot<T>(SleepingMutex<Option<oneshot::Sender<Result<T, NoAnswer>>>>);

impl<T> AnswerSlot<T> {
    fn send_answer(&self, answer: Result<T, NoAnswer>) {
        let caller = self.0.lock().take();
        if let Some(caller) = caller {
            // The caller may be gone.
            let _ = caller.send(answer);
        }
    }
}

impl<T: Send> CallTicket for AnswerSlot<T> {
    fn expire(&self) {
        self.send_answer(Err(NoAnswer::TimeOver));
    }
}

impl CallPool {
    pub(crate) fn new(limits: &EngineLimits) -> Self {
        Self {
            inner: Arc::new(PoolInner {
                queue: SleepingMutex::new(CallQueue::new(limits)),
                ready: SleepingCondvar::new(),
                low_ready: SleepingCondvar::new(),
                limits: *limits,
            }),
        }
    }

    /// A lane for a new tenant.
    pub(crate) fn add_lane(&self) -> TenantLane {
        self.inner.queue.lock().add_lane()
    }

    /// Runs a call, passing it its deadline. Dropping the future does not stop it.
    pub(crate) async fn run_call<T: Send + 'static>(
        &self,
        lane: TenantLane,
        call: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (caller, answered) = oneshot::channel();
        let slot = Arc::new(AnswerSlot(SleepingMutex::new(Some(caller))));
        let deadline = Instant::now() + self.inner.limits.wall_time_max;
        let accepted = QueuedCall {
            lane,
            deadline,
            ticket: Arc::clone(&slot) as Arc<dyn CallTicket>,
        };
        let work = Box::new(move || slot.send_answer(Ok(call(deadline))));
        self.inner.accept_call(accepted, work)?;
        answered.await.unwrap_or(Err(NoAnswer::Abandoned))
    }

    /// Runs a call on this thread, which its caller lends, passing it its deadline.
    pub(crate) fn run_on_lent_thread<T, F>(&self, lane: TenantLane, call: F) -> LentCall<T, F>
    where
        F: FnOnce(Instant) -> T,
    {
        let inner = &self.inner;
        let needed = LENT_STACK_BYTES + inner.limits.stack_bytes_max;
        let has_stack = stacker::remaining_stack().is_some_and(|left| left >= needed);
        if !has_stack || !inner.queue.lock().begin_lent_call(lane) {
            return LentCall::GivenBack(call);
        }
        let deadline = Instant::now() + inner.limits.wall_time_max;
        let marks = LentCallMarks::begin();
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(deadline)));
        let is_offender = priority::take_offender_mark();
        drop(marks);
        // What a panic carries is dropped while nothing is locked.
        let answer = called.map_err(|_| NoAnswer::Abandoned);
        let mut queue = inner.queue.lock();
        queue.update_lane(lane, |state| state.running -= 1);
        if is_offender {
            queue.lower_lane(lane, Instant::now());
        }
        // What waited for this call to end.
        for side in [PriorityClass::Normal, PriorityClass::Low] {
            inner.serve_class(&mut queue, side);
        }
        LentCall::Answered(answer)
    }

    /// Answers the callers whose time has passed, moves lanes back from the low class, and starts
    /// missing threads.
    pub(crate) fn run_upkeep(&self) {
        let now = Instant::now();
        let mut dropped = Vec::new();
        for (call, work) in self.inner.take_overdue(now) {
            call.ticket.expire();
            dropped.extend(work);
        }
        if !dropped.is_empty() {
            // The work may own the last reference to a tenant, down to a store that closes: the
            // ticker does not wait for that. If no thread can be had, the work is dropped here.
            let _ = std::thread::Builder::new().spawn(move || drop(dropped));
        }
        let mut queue = self.inner.queue.lock();
        queue.raise_expired_lanes(now);
        for side in [PriorityClass::Normal, PriorityClass::Low] {
            self.inner.serve_class(&mut queue, side);
        }
    }
}

impl Drop for CallPool {
    fn drop(&mut self) {
        self.inner.queue.lock().closed = true;
        self.inner.ready.notify_all();
        self.inner.low_ready.notify_all();
    }
}

impl PoolInner {
    fn accept_call(self: &Arc<Self>, call: QueuedCall, work: CallClosure) -> Result<(), NoAnswer> {
        let mut queue = self.queue.lock();
        let side = queue.class_of(call.lane);
        let number = match queue.push_call(call, work, self.limits.calls_queued_max) {
            Ok(number) => number,
            Err(refused) => {
                // The work may take long to drop: not while the queue is locked.
                drop(queue);
                drop(refused);
                return Err(NoAnswer::QueueFull);
            }
        };
        self.serve_class(&mut queue, side);
        // A call that waits for one on a lent thread is served when that is over.
        if queue.thread_count() == 0 && queue.class_queue(side).startable > 0 {
            let withdrawn = queue.remove_call(number);
            drop(queue);
            drop(withdrawn);
            return Err(NoAnswer::NoThread);
        }
        Ok(())
    }

    /// Wakes a thread for a class that has a startable call, or starts the missing threads.
    fn serve_class(self: &Arc<Self>, queue: &mut CallQueue, side: PriorityClass) {
        let half = queue.class_queue(side);
        if half.startable == 0 {
            return;
        }
        let missing = half.startable.saturating_sub(half.idle);
        let full = (0..missing).any(|_| !self.start_thread(queue, side));
        // Without a free place, a thread of the other class may make room.
        if side == PriorityClass::Normal || full {
            self.ready.notify_one();
        }
        if side == PriorityClass::Low || full {
            self.low_ready.notify_one();
        }
    }

    /// True if a thread was started.
    fn start_thread(self: &Arc<Self>, queue: &mut CallQueue, side: PriorityClass) -> bool {
        let refused = side == PriorityClass::Low && queue.low.threads >= self.low_threads_max();
        if queue.closed || refused || queue.thread_count() >= self.limits.call_threads_max {
            return false;
        }
        let inner = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("threadkeep-call-{}", queue.thread_count()))
            .stack_size(HOST_STACK_BYTES + self.limits.stack_bytes_max)
            .spawn(move || {
                if side == PriorityClass::Low {
                    priority::lower_priority();
                }
                inner.run_thread(side);
            });
        let half = queue.class_queue(side);
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
    fn take_overdue(&self, now: Instant) -> Vec<(QueuedCall, Option<CallClosure>)> {
        let mut overdue = Vec::new();
        let mut queue = self.queue.lock();
        while let Some((&number, first)) = queue.calls.first_key_value()
            && first.deadline <= now
        {
            overdue.extend(queue.remove_call(number));
        }
        overdue
    }

    fn run_thread(self: &Arc<Self>, mut side: PriorityClass) {
        self.queue.lock().class_queue(side).idle -= 1;
        while let Some(StartedCall { number, lane, work }) = self.next_call(&mut side) {
            priority::begin_call();
            // A panic drops the sender of the answer, which tells the caller; the thread lives on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let stopped = priority::take_offender_mark();
            let mut queue = self.queue.lock();
            let answered = queue.calls.remove(&number);
            queue.update_lane(lane, |state| state.running -= 1);
            let stepped_back = side == PriorityClass::Normal && priority::is_low();
            if stepped_back {
                move_to_low_class(&mut queue, &mut side);
            }
            if stepped_back || stopped {
                queue.lower_lane(lane, Instant::now());
            }
            drop(queue);
            drop(answered);
        }
        let mut queue = self.queue.lock();
        queue.class_queue(side).threads -= 1;
        for side in [PriorityClass::Normal, PriorityClass::Low] {
            self.serve_class(&mut queue, side);
        }
    }

    /// The next call; `None` when the thread is to end.
    fn next_call(&self, side: &mut PriorityClass) -> Option<StartedCall> {
        let mut queue = self.queue.lock();
        loop {
            let full = queue.thread_count() >= self.limits.call_threads_max;
            let place_needed = full && queue.normal.lacks_threads();
            let too_many = queue.low.threads > self.low_threads_max();
            if *side == PriorityClass::Low && (place_needed || too_many) {
                return None;
            }
            if let Some(started) = queue.take_next(*side) {
                return Some(started);
            }
            let room = queue.low.threads < self.low_threads_max();
            if full && room && *side == PriorityClass::Normal && queue.low.lacks_threads() {
                move_to_low_class(&mut queue, side);
                drop(queue);
                priority::lower_priority();
                queue = self.queue.lock();
                continue;
            }
            if queue.closed {
                return None;
            }
            let timed_out = self.wait_for_call(&mut queue, *side);
            if timed_out && queue.class_queue(*side).startable == 0 {
                return None;
            }
        }
    }

    /// Waits for a call; true if none came within the idle time.
    fn wait_for_call(&self, queue: &mut MutexGuard<'_, CallQueue>, side: PriorityClass) -> bool {
        let (ready, most) = match side {
            PriorityClass::Normal => (&self.ready, IDLE_TIME_MAX),
            PriorityClass::Low => (&self.low_ready, LOW_IDLE_TIME_MAX),
        };
        queue.class_queue(side).idle += 1;
        let waited = ready.wait_for(queue, most);
        queue.class_queue(side).idle -= 1;
        waited.timed_out()
    }
}

/// Moves a thread from the normal to the low class.
fn move_to_low_class(queue: &mut CallQueue, side: &mut PriorityClass) {
    queue.normal.threads -= 1;
    queue.low.threads += 1;
    *side = PriorityClass::Low;
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "lent_thread_tests.rs"]
mod lent_thread_tests;
