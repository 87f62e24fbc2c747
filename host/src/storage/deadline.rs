//! The deadline of the call that this thread serves.
//!
//! Storage is synchronous and answers on the caller's own thread, so the deadline stands with the
//! thread and [`Storage`](super::Storage) need not carry it. A backend that can interrupt its reads
//! asks [`current`]; writes are not interrupted, because a commit may carry others with it.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Takes the deadline away when it is dropped, also by a panic.
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

/// When the call ends that is being served on this thread, if one is.
#[cfg_attr(
    not(feature = "sqlite"),
    expect(
        dead_code,
        reason = "the one backend that can interrupt its reads is SQLite"
    )
)]
pub(crate) fn current() -> Option<Instant> {
    DEADLINE.get()
}
