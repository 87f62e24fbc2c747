//! Times as text for users: relative ones. Documents keep RFC 3339.

use jiff::Timestamp;

/// Units of a relative time: their seconds and their names.
const UNITS: [(i64, &str); 4] = [
    (86_400, "day"),
    (3_600, "hour"),
    (60, "minute"),
    (1, "second"),
];

/// Longest relative time; a time further away is shown as a date.
const RELATIVE_SECONDS_MAX: i64 = 30 * 86_400;

/// Formats `3 minutes ago`, `in 2 hours`, `now`, or the date; returns text that is no RFC 3339 time
/// unchanged.
pub fn format_relative(time: &str, now: Timestamp) -> String {
    let Ok(then) = time.parse::<Timestamp>() else {
        return time.to_owned();
    };
    let ago = now.as_second().saturating_sub(then.as_second());
    let far = ago.saturating_abs();
    if far > RELATIVE_SECONDS_MAX {
        return then.strftime("%Y-%m-%d").to_string();
    }
    let Some((seconds, unit)) = UNITS.into_iter().find(|(seconds, _)| far >= *seconds) else {
        return "now".to_owned();
    };
    let count = far / seconds;
    let plural = if count == 1 { "" } else { "s" };
    match ago > 0 {
        true => format!("{count} {unit}{plural} ago"),
        false => format!("in {count} {unit}{plural}"),
    }
}

/// Formats a time for a person: relative to `now`, or in UTC to the second, `2026-03-10 12:00:00Z`.
pub fn format_shown(time: &str, now: Timestamp, utc: bool) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) if utc => then.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        _ => format_relative(time, now),
    }
}

/// Formats a duration: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn format_duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, millis % 1_000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_ago() {
        let now: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
        for (time, expected) in [
            ("2026-03-10T12:00:00Z", "now"),
            ("2026-03-10T11:59:59Z", "1 second ago"),
            ("2026-03-10T11:59:01Z", "59 seconds ago"),
            ("2026-03-10T11:58:59Z", "1 minute ago"),
            ("2026-03-10T09:30:00Z", "2 hours ago"),
            ("2026-03-08T12:00:00Z", "2 days ago"),
            ("2026-03-10T12:05:00Z", "in 5 minutes"),
            ("2025-01-02T00:00:00Z", "2025-01-02"),
            ("2036-01-02T00:00:00Z", "2036-01-02"),
            ("yesterday", "yesterday"),
            ("", ""),
        ] {
            assert_eq!(format_relative(time, now), expected, "{time}");
        }
    }

    #[test]
    fn a_time_in_utc() {
        let now: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
        let time = "2026-03-10T11:59:00Z";
        assert_eq!(format_shown(time, now, true), "2026-03-10 11:59:00Z");
        assert_eq!(format_shown(time, now, false), "1 minute ago");
        assert_eq!(format_shown("soon", now, true), "soon");
    }

    #[test]
    fn how_long() {
        for (millis, expected) in [
            (0, "0.0 s"),
            (1_240, "1.2 s"),
            (59_999, "59 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(format_duration(millis), expected);
        }
    }
}
