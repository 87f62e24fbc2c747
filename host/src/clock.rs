//! Time, as a value that an embedder chooses: the system's clock, or one that stands still until it
//! is moved.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use threadkeep_storage::locks::SleepingMutex;

/// Seconds since the Unix epoch, negative before it, and nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ClockTime {
    /// Seconds.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanos: u32,
}

impl ClockTime {
    /// This time plus `by`; saturates.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
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
    pub fn saturating_duration_since(self, now: Self) -> Duration {
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
pub trait HostClock: Send + Sync {
    /// The time now.
    fn now(&self) -> ClockTime;
}

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl HostClock for SystemClock {
    fn now(&self) -> ClockTime {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => ClockTime {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanos: since.subsec_nanos(),
            },
            Err(before) => {
                let ago = i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX);
                ClockTime {
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
    now: SleepingMutex<ClockTime>,
}

impl ManualClock {
    /// A clock that stands at this time.
    pub fn new(now: ClockTime) -> Self {
        Self {
            now: SleepingMutex::new(now),
        }
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, now: ClockTime) {
        *self.now.lock() = now;
    }

    /// Moves the clock forwards.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        *now = now.saturating_add(by);
    }
}

impl HostClock for ManualClock {
    fn now(&self) -> ClockTime {
        *self.now.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_since_is_exact_and_saturates() {
        let now = ClockTime {
            seconds: 10,
            nanos: 900_000_000,
        };
        for (time, expected) in [
            (
                ClockTime {
                    seconds: 11,
                    nanos: 100_000_000,
                },
                Duration::from_millis(200),
            ),
            (
                ClockTime {
                    seconds: 10,
                    nanos: 900_000_001,
                },
                Duration::from_nanos(1),
            ),
            (now, Duration::ZERO),
            (
                ClockTime {
                    seconds: 1,
                    nanos: 0,
                },
                Duration::ZERO,
            ),
        ] {
            assert_eq!(time.saturating_duration_since(now), expected);
        }
    }

    #[test]
    fn manual_clock_moves() {
        let clock = ManualClock::default();
        clock.advance(Duration::from_millis(1_500));
        clock.advance(Duration::from_millis(600));
        assert_eq!(
            clock.now(),
            ClockTime {
                seconds: 2,
                nanos: 100_000_000
            }
        );
        clock.set(ClockTime::default());
        assert_eq!(clock.now(), ClockTime::default());
    }
}
