//! Points in time, as arguments. Nothing here reads a clock.

use crate::json::record::record;

/// Seconds and nanoseconds since the Unix epoch; `nanos` is below 1,000,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

record!(Instant { seconds, nanos });

impl Instant {
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

    /// RFC 3339 in UTC with milliseconds, such as `2026-02-17T10:00:56.000Z`. Years outside 0 to 9999 are clamped.
    pub fn rfc3339(self) -> String {
        let days = self.seconds.div_euclid(86_400).clamp(-719_528, 2_932_896);
        let second = self.seconds.rem_euclid(86_400);
        let (year, month, day) = civil(days);
        format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            second / 3_600,
            second / 60 % 60,
            second % 60,
            self.nanos / 1_000_000
        )
    }
}

/// Year, month and day of a count of days since 1970-01-01 in the proleptic Gregorian calendar: eras of 400 years that
/// begin on a first of March, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_dates() {
        for (seconds, nanos, expected) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, 999_999_999, "2000-02-29T00:00:00.999Z"),
            (1_771_322_456, 5_000_000, "2026-02-17T10:00:56.005Z"),
            (-1, 0, "1969-12-31T23:59:59.000Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59.000Z"),
            (i64::MAX, 0, "9999-12-31T15:30:07.000Z"),
        ] {
            assert_eq!(Instant { seconds, nanos }.rfc3339(), expected);
        }
    }

    #[test]
    fn adds_and_subtracts_without_wrapping() {
        let late = Instant {
            seconds: 5,
            nanos: 999_000_000,
        };
        assert_eq!(
            late.plus_millis(1),
            Instant {
                seconds: 6,
                nanos: 0
            }
        );
        assert_eq!(
            late.plus_millis(u64::MAX).plus_millis(u64::MAX).nanos % 1_000_000,
            0
        );
        assert_eq!(
            late.millis_since(Instant {
                seconds: 9,
                nanos: 0
            }),
            0
        );
        assert_eq!(
            late.millis_since(Instant {
                seconds: 5,
                nanos: 0
            }),
            999
        );
        assert_eq!(Instant::from_millis(5_999), late);
    }
}
