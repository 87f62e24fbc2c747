//! Calls that compute long, and calls of a tenant whose last calls did or were stopped by a limit, run at the lowest
//! priority, so that short calls of other tenants find a core at once. An unprivileged thread cannot get its priority
//! back, so the pool lets it end after the call and starts another. Where the system has no priority for one thread,
//! nothing happens.

use std::cell::Cell;

thread_local! {
    static LOW: Cell<bool> = const { Cell::new(false) };
    static BLAMED: Cell<bool> = const { Cell::new(false) };
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
