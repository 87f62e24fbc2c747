//! Medians and their format.

use std::time::Duration;

/// Returns the median.
pub fn median(durations: &mut [Duration]) -> Duration {
    durations.sort_unstable();
    durations
        .get(durations.len() / 2)
        .copied()
        .unwrap_or_default()
}

pub fn micros(duration: Duration) -> String {
    format!("{:.1} us", duration.as_secs_f64() * 1e6)
}

pub fn ratio(part: Duration, whole: Duration) -> String {
    format!("{:.2}", part.as_secs_f64() / whole.as_secs_f64())
}
