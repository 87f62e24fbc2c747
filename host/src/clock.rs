//! Time, as a value that an embedder chooses: the system's clock, or one that stands still until it
//! is moved.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since the Unix epoch, negative before it, and nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanos: u32,
}

impl Time {
    /// This time plus `by`; saturates.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        let nanos = u64::from(self.nanos) + u64::from(by.subsec_nanos());
        let seconds = by.as_secs() + nanos / 1_000_000_000;
        Self {
            seconds: self
                .seconds
                .saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX)),
            nanos: (nanos % 1_000_000_000) as u32,
        }
    }

    /// The duration from `now` until this time; zero if it is past.
    pub fn until(self, now: Self) -> Duration {
        if self <= now {
            return Duration::ZERO;
        }
        let seconds = self.seconds.saturating_sub(now.seconds);
        let nanos = i64::from(self.nanos) - i64::from(now.nanos);
        let (seconds, nanos) = if nanos < 0 {
            (seconds - 1, nanos + 1_000_000_000)
        } else {
            (seconds, nanos)
        };
        Duration::new(
            u64::try_from(seconds).unwrap_or(0),
            u32::try_from(nanos).unwrap_or(0),
        )
    }
}

/// A clock. It may stand still and it may step back: nothing correct depends on it.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Time;
}

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Time {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanos: since.subsec_nanos(),
            },
            Err(before) => {
                let ago = i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX);
                Time {
                    seconds: -ago,
                    nanos: 0,
                }
            }
        }
    }
}

/// A clock that stands still until the caller moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: Mutex<Time>,
}

impl ManualClock {
    /// A clock that stands at this time.
    pub fn new(now: Time) -> Self {
        Self {
            now: Mutex::new(now),
        }
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, now: Time) {
        *self
            .now
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = now;
    }

    /// Moves the clock forwards.
    pub fn advance(&self, by: Duration) {
        let mut now = self
            .now
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = now.after(by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        *self
            .now
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_what_is_left() {
        let now = Time {
            seconds: 10,
            nanos: 900_000_000,
        };
        for (time, expected) in [
            (
                Time {
                    seconds: 11,
                    nanos: 100_000_000,
                },
                Duration::from_millis(200),
            ),
            (
                Time {
                    seconds: 10,
                    nanos: 900_000_001,
                },
                Duration::from_nanos(1),
            ),
            (now, Duration::ZERO),
            (
                Time {
                    seconds: 1,
                    nanos: 0,
                },
                Duration::ZERO,
            ),
        ] {
            assert_eq!(time.until(now), expected);
        }
    }

    #[test]
    fn a_manual_clock_moves_as_told() {
        let clock = ManualClock::default();
        clock.advance(Duration::from_millis(1_500));
        clock.advance(Duration::from_millis(600));
        assert_eq!(
            clock.now(),
            Time {
                seconds: 2,
                nanos: 100_000_000
            }
        );
        clock.set(Time::default());
        assert_eq!(clock.now(), Time::default());
    }
}
