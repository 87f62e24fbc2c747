//! A model call that failed, or a step that its driver stopped.

use super::settlement::{count_time, settle_attempt};
use super::submission::LlmFailure;
use super::transition::{RetryWait, RunTransition};
use super::{BACKOFF_MILLIS, PARTIAL_BYTES_MAX, RETRIES_MAX, RETRY_AFTER_MILLIS_MAX};
use crate::error::cut;
use crate::history::{ErrorEvent, Event, PartialEvent, cut_escaped};
use crate::ledger::Usage;
use crate::plan::ThreadChange;
use crate::thread::{CauseDetail, StatusCause, find_reached_cap};

/// The kinds of failures, as the contract names them.
const KINDS: [&str; 6] = [
    "transient",
    "rate-limited",
    "permanent",
    "quota",
    "context-overflow",
    "cancelled",
];
/// Prefix of the error codes of ceilings: a host that enforces a ceiling refuses a call by such a
/// code.
const CEILING: &str = "ceiling_";

/// Counts the time of an attempt that failed or was stopped, settles it, and keeps its text.
pub(super) fn settle_failed_attempt(change: &mut ThreadChange<'_>, failure: &LlmFailure) {
    count_time(change);
    settle_attempt(
        change,
        failure.usage,
        failure.may_have_cost(),
        &failure.partial,
    );
    push_partial(change, &failure.partial);
}

/// Records a failed model call and settles the known usage. The run waits for the next attempt, or
/// is suspended.
pub(super) fn apply_failure(
    change: &mut ThreadChange<'_>,
    tries: u32,
    failure: &LlmFailure,
) -> RunTransition {
    settle_failed_attempt(change, failure);
    let code = cut(&failure.code, 100);
    // A failure that repeats unchanged and may cost something each time is tried twice, not four
    // times.
    let paid = failure
        .usage
        .map_or(failure.may_have_cost(), |usage| usage != Usage::default());
    let before = change
        .head
        .step
        .as_ref()
        .and_then(|step| step.failed.as_deref());
    let again = paid && before == Some(code);
    let wanted = transient_retry_millis(tries, failure).filter(|_| !again);
    let full = change.store_full_cause();
    let capped = || wanted.and_then(|_| find_reached_cap(&change.head, change.ceiling()));
    let stop = full.or_else(capped);
    let retry = wanted.filter(|_| stop.is_none());
    push_failure(change, failure, tries + 1, retry);
    match retry {
        Some(millis) => RunTransition::Retry(RetryWait {
            millis,
            tries,
            output: change.head.step.as_ref().map_or(0, |step| step.output),
            failed: paid.then(|| code.to_owned()),
        }),
        None => {
            let overflow = stop.is_none() && failure.kind == "context-overflow";
            let cause = stop.unwrap_or_else(|| failure_cause(failure, again));
            match overflow {
                true => RunTransition::Overflow(cause),
                false => RunTransition::Suspend(cause),
            }
        }
    }
}

/// Adds the event of a failed attempt; `retry` is the time in milliseconds until the next.
pub(super) fn push_failure(
    change: &mut ThreadChange<'_>,
    failure: &LlmFailure,
    attempt: u32,
    retry: Option<u64>,
) {
    change.push_event(Event::Error(ErrorEvent {
        kind: known_kind(&failure.kind).to_owned(),
        code: cut(&failure.code, 100).to_owned(),
        message: cut(&failure.message, 1_000).to_owned(),
        attempt,
        retry,
    }));
}

/// Returns the cause of a suspension after a failure: a refusal by a host's ceiling is a limit of
/// that name, every other failure is the provider's. `again` is true if the attempt before it
/// failed in the same way, and both may cost something. A wait that the provider asks for is named
/// in the sentence and, in milliseconds, as the value.
fn failure_cause(failure: &LlmFailure, again: bool) -> StatusCause {
    let LlmFailure {
        kind,
        code,
        message,
        ..
    } = failure;
    if code.starts_with(CEILING) {
        return StatusCause::new("limit", cut(code, 100), cut(message, 1_000));
    }
    let mut message = cut(message, 900).to_owned();
    if again {
        message.push_str(", twice in a row");
    }
    if let Some(millis) = failure.retry {
        let seconds = millis.div_ceil(1_000);
        message.push_str(&format!(
            "; it asks to wait {seconds} s before the next attempt"
        ));
    }
    StatusCause {
        value: failure.retry,
        ..provider_cause(kind, code, &message)
    }
}

/// Milliseconds until the next attempt: the time that the provider asks for, at least the backoff;
/// `None` for no further attempt.
pub(super) fn transient_retry_millis(tries: u32, failure: &LlmFailure) -> Option<u64> {
    let again = matches!(failure.kind.as_str(), "transient" | "rate-limited");
    let asked = failure.retry.unwrap_or(0);
    if !again || tries >= RETRIES_MAX || asked > RETRY_AFTER_MILLIS_MAX {
        return None;
    }
    Some(asked.max(BACKOFF_MILLIS << tries))
}

/// Records a step that its driver stopped, for a cancel or for its person. Calls that may run again
/// stay open unless the run ends.
pub(super) fn apply_driver_stop(
    change: &mut ThreadChange<'_>,
    failure: &LlmFailure,
) -> RunTransition {
    settle_failed_attempt(change, failure);
    let message = "the driver stopped the run: resume to go on";
    RunTransition::Stop(StatusCause::new("error", "stopped", message))
}

/// Adds the text that arrived of a reply that never finished, if any did.
pub(super) fn push_partial(change: &mut ThreadChange<'_>, partial: &str) {
    if !partial.is_empty() {
        let text = cut_escaped(partial, PARTIAL_BYTES_MAX).to_owned();
        // In the phase of a hand-off each attempt is one at the summary.
        let summary = change.head.phase.is_some();
        change.push_event(Event::Partial(PartialEvent { text, summary }));
    }
}

/// Returns the kind of a failure as the contract has it: `unknown` for any other word, which comes
/// from outside and may be of any length.
pub(super) fn known_kind(kind: &str) -> &'static str {
    let known = KINDS.into_iter().find(|known| *known == kind);
    known.unwrap_or("unknown")
}

/// Returns the cause of a suspension for a provider's failure.
fn provider_cause(kind: &str, code: &str, message: &str) -> StatusCause {
    let text = format!("{} ({})", cut(message, 1_000), cut(code, 100));
    let kind = format!("provider_{}", known_kind(kind).replace('-', "_"));
    StatusCause::new("error", &kind, text).with_detail(CauseDetail {
        failure: Some(cut(code, 100).to_owned()),
        account: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a kind of 400 KB stood in the head and in every page of a list. Fix: the kinds are
    /// a closed set.
    #[test]
    fn any_other_kind_is_unknown() {
        for kind in KINDS {
            assert_eq!(known_kind(kind), kind);
        }
        for kind in ["", "Transient", "a\u{1}", &"k".repeat(400_000)] {
            let cause = provider_cause(kind, "c", "m");
            assert_eq!(cause.code, "provider_unknown");
        }
    }

    /// Symptom: a provider asked to wait for 900 s, the run was suspended, and the person was not
    /// told for how long. Cause: only the runner looked at the wait. Fix: the cause says it.
    /// Kind: causes of suspensions, with and without a wait.
    #[test]
    fn a_cause_says_the_wait_that_the_provider_asks_for() {
        let cause = |retry, again| {
            let failure = LlmFailure {
                kind: "rate-limited".into(),
                code: "http_429".into(),
                message: "slow down".into(),
                retry,
                ..LlmFailure::default()
            };
            failure_cause(&failure, again)
        };
        let asked = "slow down; it asks to wait 901 s before the next attempt (http_429)";
        for (retry, again, message) in [
            (None, false, "slow down (http_429)"),
            (None, true, "slow down, twice in a row (http_429)"),
            (Some(900_001), false, asked),
        ] {
            let cause = cause(retry, again);
            assert_eq!((cause.message.as_str(), cause.value), (message, retry));
        }
    }

    #[test]
    fn retries_what_may_succeed_and_waits_as_asked() {
        let failure = |kind: &str, retry| LlmFailure {
            kind: kind.into(),
            retry,
            ..LlmFailure::default()
        };
        for (kind, asked, tries, expected) in [
            ("transient", None, 0, Some(500)),
            ("transient", None, 2, Some(2_000)),
            ("transient", None, 3, None),
            ("rate-limited", Some(7_000), 0, Some(7_000)),
            ("rate-limited", Some(1), 1, Some(1_000)),
            ("rate-limited", Some(RETRY_AFTER_MILLIS_MAX + 1), 0, None),
            ("permanent", None, 0, None),
            ("quota", Some(1), 0, None),
            ("context-overflow", None, 0, None),
            ("cancelled", None, 0, None),
            ("unheard-of", None, 0, None),
        ] {
            assert_eq!(
                transient_retry_millis(tries, &failure(kind, asked)),
                expected,
                "{kind} {asked:?} {tries}"
            );
        }
    }
}
