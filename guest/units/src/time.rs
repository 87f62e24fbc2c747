//! Times as text: RFC 3339 in UTC.

/// Longest time of a model call whose model names none: 128,000 output tokens at 40 a second. A
/// host bounds silence by itself, and the cap on duration bounds the run.
pub const MODEL_MILLIS: u64 = 3_600_000;

/// Seconds in a day.
const DAY_SECONDS: i64 = 86_400;

/// Formats a time as `2026-02-17T10:00:56.000Z`. Years outside 0 to 9999 are clamped.
pub fn rfc3339_millis(seconds: i64, nanos: u32) -> String {
    format!("{}.{:03}Z", until_second(seconds), nanos / 1_000_000)
}

/// Formats a time as `2026-02-17T10:00:56Z`. Years outside 0 to 9999 are clamped.
pub fn rfc3339_seconds(seconds: i64) -> String {
    format!("{}Z", until_second(seconds))
}

fn until_second(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY_SECONDS).clamp(-719_528, 2_932_896);
    let second = seconds.rem_euclid(DAY_SECONDS);
    let (year, month, day) = civil_date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a count of days since 1970-01-01 in the proleptic Gregorian calendar. An
/// era has 400 years that begin on a first of March, so that the leap day comes last.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = match month_from_march {
        0..10 => month_from_march + 3,
        _ => month_from_march - 9,
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
            assert_eq!(rfc3339_millis(seconds, nanos), expected);
        }
        assert_eq!(rfc3339_seconds(951_782_400), "2000-02-29T00:00:00Z");
    }
}
