//! Calls that compute long, and calls of a tenant whose last calls did or were stopped by a limit, run at the lowest
//! priority, so that short calls of other tenants find a core at once. An unprivileged thread cannot get its priority
//! back, so the pool lets it end after the call and starts another. Where the system has no priority for one thread,
//! nothing happens.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// What this thread had computed when its call began.
    static BEGAN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static LOW: Cell<bool> = const { Cell::new(false) };
    static BLAMED: Cell<bool> = const { Cell::new(false) };
}

/// A call begins on this thread.
pub(super) fn begin() {
    BEGAN.set(computed());
}

/// What the call on this thread has had of a core, imports included. Not the time that has passed: where others keep all
/// cores busy, an honest call would else be taken for a long one, and then wait for them all.
pub(super) fn computed_by_call() -> Duration {
    computed().saturating_sub(BEGAN.get())
}

#[cfg(target_os = "linux")]
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

#[cfg(not(target_os = "linux"))]
fn computed() -> Duration {
    Duration::ZERO
}

/// Lower the priority of this thread for good.
///
/// The policy for idle time and not the lowest niceness: a thread that wakes takes the core from an idle one at once, and
/// waits for a nice one until its slice is over, which is some milliseconds.
pub(super) fn lower() {
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

/// Was it lowered?
pub(super) fn is_low() -> bool {
    LOW.get()
}

/// The call on this thread was stopped by a limit or a trap.
pub(super) fn blame() {
    BLAMED.set(true);
}

/// Was it, since this was last asked?
pub(super) fn take_blame() -> bool {
    BLAMED.take()
}
