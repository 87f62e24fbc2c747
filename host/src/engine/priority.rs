//! Priority of the pool's threads. Calls that compute long run at the lowest priority, as do calls
//! of a tenant whose last calls did so or were stopped by a limit, so that short calls of other
//! tenants find a core at once. An unprivileged thread cannot raise its priority again, so the pool
//! lets it end after the call and starts another. Where the system has no priority for a single
//! thread, nothing happens.
//!
//! On a machine whose cores are busy with others, a tenant in the low class waits, for as long as
//! its wall time lasts. A low thread holds the pool's lock for moments only, but it may be
//! interrupted in one of them.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// CPU time of this thread when its call began.
    static BEGAN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static LOW: Cell<bool> = const { Cell::new(false) };
    static BLAMED: Cell<bool> = const { Cell::new(false) };
    /// True while a call computes on a thread that its caller lends.
    static LENT: Cell<bool> = const { Cell::new(false) };
}

/// Marks the beginning of a call on this thread.
pub(super) fn begin_call() {
    BEGAN.set(thread_cpu_time());
}

/// A call on a thread that its caller lends, whose priority is not ours to change. Dropped, it
/// leaves the marks of the call that it was made within, if any.
pub(super) struct LentCallMarks {
    began: Duration,
    lent: bool,
    blamed: bool,
}

impl LentCallMarks {
    /// Marks the beginning of a call on a lent thread.
    pub(super) fn begin() -> Self {
        let before = Self {
            began: BEGAN.get(),
            lent: LENT.replace(true),
            blamed: BLAMED.take(),
        };
        begin_call();
        before
    }
}

impl Drop for LentCallMarks {
    fn drop(&mut self) {
        BEGAN.set(self.began);
        LENT.set(self.lent);
        BLAMED.set(self.blamed);
    }
}

/// CPU time of the call on this thread, imports included. Not elapsed time: where others keep all
/// cores busy, a short call would be taken for a long one, and then wait for all others.
pub(super) fn call_cpu_time() -> Duration {
    thread_cpu_time().saturating_sub(BEGAN.get())
}

#[cfg(target_os = "linux")]
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

#[cfg(not(target_os = "linux"))]
fn thread_cpu_time() -> Duration {
    Duration::ZERO
}

/// Lowers the priority of this thread until the thread ends. Does nothing on other systems than
/// Linux. A lent thread keeps its priority: the later calls of its tenant are lowered.
///
/// It sets the idle policy and not the lowest niceness: a thread that wakes takes the core from an
/// idle one at once, but waits for a nice one until its slice is over, which is some milliseconds.
pub(super) fn lower_priority() {
    if LENT.get() {
        mark_offender();
        return;
    }
    #[cfg(target_os = "linux")]
    if !LOW.get() {
        use thread_priority::{
            NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
            set_thread_priority_and_policy, thread_native_id,
        };
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        let done = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
        LOW.set(done.is_ok());
    }
}

/// True if the priority of this thread was lowered.
pub(super) fn is_low() -> bool {
    LOW.get()
}

/// Marks the call on this thread as stopped by a limit or a trap.
pub(super) fn mark_offender() {
    BLAMED.set(true);
}

/// True if the call was marked since the last question.
pub(super) fn take_offender_mark() -> bool {
    BLAMED.take()
}
