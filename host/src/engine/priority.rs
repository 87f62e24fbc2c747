//! Calls that compute long step back: their thread goes on with the lowest priority, so that short calls of other
//! tenants find a core at once. An unprivileged thread cannot get its priority back, so the pool lets it end after the
//! call and starts another. Where the system has no priority for one thread, nothing happens.

use std::cell::Cell;

/// The lowest that there is on Linux.
#[cfg(target_os = "linux")]
const LOWEST: i32 = 19;

thread_local! {
    static LOW: Cell<bool> = const { Cell::new(false) };
}

/// Lower the priority of this thread for good.
pub(super) fn lower() {
    #[cfg(target_os = "linux")]
    if !LOW.get() {
        // On Linux, no process means this thread alone.
        LOW.set(rustix::process::setpriority_process(None, LOWEST).is_ok());
    }
}

/// Was it lowered?
pub(super) fn is_low() -> bool {
    LOW.get()
}
