//! The arguments of `list`, and the times that commands take.

use clap::Args;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp, Unit};

/// Most threads that `list --limit` takes: what a person reads, and a program in one document.
const LIST_LIMIT_MAX: u32 = 1_000;

/// Most threads that `list --all` prints: their rows are in memory together, some 60 MB of them. A
/// cursor goes on behind them.
pub const LIST_ALL_MAX: u32 = 100_000;

/// The statuses that a thread may have: those of the component, which a test compares.
const STATUSES: [&str; 10] = [
    "created",
    "running",
    "waiting",
    "suspended",
    "idle",
    "completed",
    "error",
    "cancelled",
    "killed",
    "continued",
];

/// The arguments of `list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Filters combine: a thread that is listed meets all of them. Children stand under the thread \
that spawned them where both are on the page.

  threadkeep list --status suspended --since 7d")]
pub struct ListArgs {
    /// The threads to list.
    #[command(flatten)]
    pub filter: ListFilter,
    /// The number of threads, 1 to 1000
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_LIMIT_MAX))
    )]
    pub limit: u32,
    /// All threads, not a page of them
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// Go on behind this thread, the last of another list
    #[arg(long, value_name = "ID", conflicts_with = "cursor")]
    pub after: Option<String>,
    /// Go on where another list ended: the `cursor` of its JSON
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Show times in UTC, not as the time that has passed
    #[arg(long)]
    pub utc: bool,
}

/// A filter of threads. They are listed newest first: by the last change of their status, or by
/// creation with a filter of another kind.
#[derive(Debug, Clone, Default, Args)]
pub struct ListFilter {
    /// With this status
    #[arg(long, value_name = "STATUS", value_parser = STATUSES, hide_possible_values = true)]
    pub status: Option<String>,
    /// Of this directive
    #[arg(long, value_name = "NAME")]
    pub directive: Option<String>,
    /// Of this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Of this task
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Changed since then: 2h, 7d, 2026-03-10 or 2026-03-10T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = PastTime::parse)]
    pub since: Option<PastTime>,
    /// That no other thread spawned: no children
    #[arg(long, conflicts_with = "parent")]
    pub roots: bool,
    /// Children of this thread, with the later links of those that were continued
    #[arg(long, value_name = "ID", conflicts_with_all = ["chain", "forks"])]
    pub parent: Option<String>,
    /// Links of this chain
    #[arg(long, value_name = "ID", conflicts_with = "forks")]
    pub chain: Option<String>,
    /// Forks of this chain
    #[arg(long, value_name = "ID")]
    pub forks: Option<String>,
}

/// A time in the past, as a person names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastTime {
    /// So many seconds before now.
    Ago(i64),
    /// At this second since 1970.
    At(i64),
}

impl PastTime {
    /// Reads a time with its date, a date (its first moment in UTC), or how long ago it was.
    ///
    /// # Errors
    /// A sentence about what a time is.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(Self::At(time.as_second()));
        }
        if let Ok(date) = text.parse::<Date>() {
            let start = date.to_zoned_datetime(TimeZone::UTC);
            return start
                .map(|start| Self::At(start.timestamp().as_second()))
                .map_err(|error| error.to_string());
        }
        let days = SpanRelativeTo::days_are_24_hours();
        let seconds = text.parse::<Span>().ok();
        let seconds = seconds.and_then(|span| {
            span.round(
                jiff::SpanRound::new()
                    .largest(Unit::Second)
                    .smallest(Unit::Second)
                    .relative(days),
            )
            .ok()
        });
        match seconds.map(|span| span.get_seconds()) {
            Some(seconds) if seconds >= 0 => Ok(Self::Ago(seconds)),
            _ => Err("a time is such as 2h, 7d, 2026-03-10 or 2026-03-10T12:00:00Z".to_owned()),
        }
    }

    /// Returns the second since 1970 that is meant at a time.
    pub fn second_at(self, now: i64) -> i64 {
        match self {
            Self::Ago(seconds) => now.saturating_sub(seconds),
            Self::At(second) => second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_the_past() {
        for (text, expected) in [
            ("2h", PastTime::Ago(7_200)),
            ("7d", PastTime::Ago(604_800)),
            ("2w", PastTime::Ago(1_209_600)),
            ("1d12h", PastTime::Ago(129_600)),
            ("0s", PastTime::Ago(0)),
            ("2026-03-10", PastTime::At(1_773_100_800)),
            ("2026-03-10T12:00:00Z", PastTime::At(1_773_144_000)),
            ("2026-03-10T14:00:00+02:00", PastTime::At(1_773_144_000)),
        ] {
            assert_eq!(PastTime::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "-2h",
            "3mo",
            "7",
            "2026-13-01",
            "9999999999d",
        ] {
            assert!(PastTime::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(PastTime::Ago(5).second_at(100), 95);
        assert_eq!(PastTime::At(5).second_at(100), 5);
    }
}
