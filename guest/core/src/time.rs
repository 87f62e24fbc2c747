//! Points in time, as arguments. Nothing here reads a clock.

use crate::json::record;
use threadkeep_units::time::rfc3339_millis;

/// Most nanoseconds within a second.
pub const NANOS_MAX: u32 = 999_999_999;

/// Seconds and nanoseconds since the Unix epoch; `nanos` is below 1,000,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixTime {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

record!(UnixTime { seconds, nanos });

impl UnixTime {
    /// Milliseconds since the epoch; 0 before it.
    pub fn millis(self) -> u64 {
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        seconds
            .saturating_mul(1_000)
            .saturating_add(u64::from(self.nanos / 1_000_000))
    }

    /// The instant `millis` milliseconds after the epoch.
    pub fn from_millis(millis: u64) -> Self {
        let seconds = i64::try_from(millis / 1_000).unwrap_or(i64::MAX);
        Self {
            seconds,
            nanos: (millis % 1_000) as u32 * 1_000_000,
        }
    }

    /// This instant and `millis` more, saturating.
    pub fn plus_millis(self, millis: u64) -> Self {
        let nanos = u64::from(self.nanos) + (millis % 1_000) * 1_000_000;
        let whole = millis / 1_000 + nanos / 1_000_000_000;
        Self {
            seconds: self
                .seconds
                .saturating_add(i64::try_from(whole).unwrap_or(i64::MAX)),
            nanos: (nanos % 1_000_000_000) as u32,
        }
    }

    /// Milliseconds from `earlier` to this instant; 0 if the clock stepped back.
    pub fn millis_since(self, earlier: Self) -> u64 {
        self.millis().saturating_sub(earlier.millis())
    }

    /// Formats the instant as RFC 3339 in UTC with milliseconds: `2026-02-17T10:00:56.000Z`.
    pub fn rfc3339(self) -> String {
        rfc3339_millis(self.seconds, self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_and_subtracts_without_wrapping() {
        let late = UnixTime {
            seconds: 5,
            nanos: 999_000_000,
        };
        assert_eq!(
            late.plus_millis(1),
            UnixTime {
                seconds: 6,
                nanos: 0
            }
        );
        assert_eq!(
            late.plus_millis(u64::MAX).plus_millis(u64::MAX).nanos % 1_000_000,
            0
        );
        assert_eq!(
            late.millis_since(UnixTime {
                seconds: 9,
                nanos: 0
            }),
            0
        );
        assert_eq!(
            late.millis_since(UnixTime {
                seconds: 5,
                nanos: 0
            }),
            999
        );
        assert_eq!(UnixTime::from_millis(5_999), late);
    }
}
