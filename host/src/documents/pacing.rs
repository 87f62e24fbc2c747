//! The times at which the last work on each thread began, so that a thread whose run goes on is not
//! worked on more often than once in a while.

use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Most threads whose last work is remembered. A thread that is forgotten may be worked on once
/// more within the gap.
const REMEMBERED_MAX: usize = 10_000;

/// The times at which the last work on each thread began.
pub(super) struct WorkPacing {
    /// Least time between two pieces of work on a thread whose run goes on.
    gap: Duration,
    begun: HashMap<String, Instant>,
}

impl WorkPacing {
    /// Nothing has begun yet.
    pub fn new(gap: Duration) -> Self {
        Self {
            gap,
            begun: HashMap::new(),
        }
    }

    /// Notes that work on a thread begins.
    pub fn note_begin(&mut self, thread: &str) {
        let now = Instant::now();
        if self.begun.len() >= REMEMBERED_MAX {
            let gap = self.gap;
            self.begun
                .retain(|_, begun| now.duration_since(*begun) < gap);
        }
        if self.begun.len() < REMEMBERED_MAX {
            self.begun.insert(thread.to_owned(), now);
        }
    }

    /// Returns the earliest time for the next work on a thread whose run goes on.
    pub fn next_begin(&self, thread: &str, now: Instant) -> Instant {
        let last = self.begun.get(thread);
        last.map_or(now, |last| (*last + self.gap).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_work_is_a_gap_after_the_last_began() {
        let gap = Duration::from_secs(1);
        let mut pacing = WorkPacing::new(gap);
        let now = Instant::now();
        assert_eq!(pacing.next_begin("a", now), now);
        pacing.note_begin("a");
        assert!(pacing.next_begin("a", now) >= now + gap);
        assert_eq!(pacing.next_begin("b", now), now, "each thread by itself");
        let much_later = now + 10 * gap;
        assert_eq!(pacing.next_begin("a", much_later), much_later);
    }
}
