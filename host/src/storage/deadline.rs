//! The deadline of the call that this thread serves.
//!
//! Storage is synchronous and answers on the caller's own thread, so the deadline is a thread-local
//! value and [`StorageBackend`](super::StorageBackend) need not pass it. A backend that can
//! interrupt its reads asks [`current_deadline`]; writes are not interrupted, because a commit may
//! include those of other callers.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Restores the previous deadline when it is dropped, also by a panic.
struct ResetOnDrop(Option<Instant>);

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

/// Serves a call that ends at `deadline`.
pub(crate) fn serve_until<T>(deadline: Instant, serve: impl FnOnce() -> T) -> T {
    let _reset = ResetOnDrop(DEADLINE.replace(Some(deadline)));
    serve()
}

/// The deadline of the call that is being served on this thread, if any.
#[cfg_attr(
    not(feature = "sqlite"),
    expect(
        dead_code,
        reason = "the one backend that can interrupt its reads is SQLite"
    )
)]
pub(crate) fn current_deadline() -> Option<Instant> {
    DEADLINE.get()
}
