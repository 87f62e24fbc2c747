//! Caps of a thread against what its run has used.
//!
//! The calls that an external loop holds count as used: calls made side by side would pass the caps
//! otherwise. A call held for tokens and settled as money counts as those tokens.

use super::{Head, StatusCause};
use crate::limits::ThreadCaps;

/// Returns the first cap that leaves no room for one more call: the thread's own, or the operator's
/// where that is lower now.
pub fn find_reached_cap(head: &Head, ceiling: ThreadCaps) -> Option<StatusCause> {
    let (own, used, held) = (&head.limits, &head.counters, head.held_totals());
    let turns = used.run_turns.saturating_add(held.turns);
    let tokens = used.run_tokens.saturating_add(held.tokens);
    let caps = [
        ("turns", turns, own.turns, ceiling.turns),
        ("tokens", tokens, own.tokens, ceiling.tokens),
        (
            "duration",
            used.run_duration,
            own.duration,
            ceiling.duration,
        ),
    ];
    caps.into_iter().find_map(|(name, value, own, most)| {
        let maximum = own.into_iter().chain(most).min()?;
        if value < maximum {
            return None;
        }
        let unit = match name {
            "duration" => "milliseconds",
            name => name,
        };
        let advice = raise_advice(own, most, "cap");
        let done = if held.turns > 0 {
            "used or holds"
        } else {
            "used"
        };
        let message = format!("the run has {done} {value} of {maximum} {unit}: {advice}");
        let code = format!("{name}_exceeded");
        Some(StatusCause::with_bound(
            "limit", &code, message, value, maximum,
        ))
    })
}

/// Returns the advice where a bound is reached: the thread's own can be raised, the operator's
/// cannot.
pub(crate) fn raise_advice<T: PartialOrd>(own: Option<T>, most: Option<T>, what: &str) -> String {
    match most {
        Some(most) if own.is_none_or(|own| own >= most) => {
            "the operator's policy allows no more, whatever the thread's own cap".to_owned()
        }
        _ => format!("raise the {what} to go on"),
    }
}
