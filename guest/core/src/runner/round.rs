//! The results of a round of calls, recorded together in the order of the calls.

use super::ROUND_BYTES_MAX;
use super::children::{WaitRequest, next_step};
use super::stop::{count_time, interrupt_calls, record_tool_cost, terminate};
use crate::error::Error;
use crate::history::{CommitReason, Entry, Event, ToolResult, ToolResultState, cut_escaped};
use crate::json::record::{record, words};
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::settings::PinnedSettings;
use crate::thread::{RoundCall, ToolRound};

/// Outcome of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// Version of the entry that holds the call.
    pub version: u64,
    /// Index of the call in it.
    pub index: u32,
    /// State of the call.
    pub state: ToolState,
    /// True if it failed.
    pub failed: bool,
    /// Text shown to the model.
    pub content: String,
    /// Cost of the call itself.
    pub cost: NanoUsd,
}

record!(write ToolOutcome { version, index, state, failed, content, cost });

/// State of a call, as the driver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// It ran.
    Done,
    /// Unknown whether it ran.
    Interrupted,
}

words!(ToolState { Done = "done", Interrupted = "interrupted" });

/// Records the results of a round and decides the next step.
pub(super) fn apply_tool_results(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    entry: Option<&Entry>,
    outcomes: Vec<ToolOutcome>,
    waiting: Option<&WaitRequest>,
) -> Result<CommitReason, Error> {
    let round = change
        .head
        .round
        .clone()
        .ok_or_else(|| Error::Corrupt("a round is pending that has no calls".into()))?;
    check_outcomes(round.version, &round.calls, &outcomes)?;
    count_time(change);
    let share = ROUND_BYTES_MAX / outcomes.len().max(1);
    for outcome in outcomes {
        record_tool_cost(change, outcome.cost);
        change.push_event(Event::ToolResult(ToolResult {
            version: outcome.version,
            index: outcome.index,
            name: tool_name_of(entry, outcome.index),
            text: cut_to_fit(outcome.content, share),
            failed: outcome.failed,
            state: if outcome.state == ToolState::Done {
                ToolResultState::Done
            } else {
                ToolResultState::Interrupted
            },
            cost: outcome.cost,
        }));
    }
    let waits: Vec<RoundCall> = round.calls.into_iter().filter(|call| call.waits).collect();
    change.head.round = (!waits.is_empty()).then_some(ToolRound {
        version: round.version,
        calls: waits,
    });
    if let Some(intent) = change.head.intent {
        interrupt_calls(change, |_| true, &|index| tool_name_of(entry, index));
        terminate(change, intent);
        return Ok(CommitReason::Cancelled);
    }
    next_step(change, pin, waiting, 0)?;
    Ok(CommitReason::ToolResults)
}

/// Returns the tool name of a call of the round's entry.
pub(super) fn tool_name_of(entry: Option<&Entry>, index: u32) -> String {
    match entry.and_then(|entry| entry.events.get(index as usize)) {
        Some(Event::ToolUse(call)) => call.name.clone(),
        _ => String::new(),
    }
}

fn check_outcomes(
    version: u64,
    calls: &[RoundCall],
    outcomes: &[ToolOutcome],
) -> Result<(), Error> {
    let outside = calls.iter().filter(|call| !call.waits);
    let expected: Vec<_> = outside.map(|call| (version, call.index)).collect();
    let given: Vec<_> = outcomes
        .iter()
        .map(|outcome| (outcome.version, outcome.index))
        .collect();
    if expected == given {
        return Ok(());
    }
    Err(Error::Conflict {
        field: "outcomes",
        expected: format!("{given:?}"),
        actual: format!("{expected:?}"),
    })
}

/// Cuts a result that is larger than its share of a round, on a character boundary, and adds a note
/// about it.
pub(super) fn cut_to_fit(content: String, bytes: usize) -> String {
    let kept = cut_escaped(&content, bytes);
    if kept.len() == content.len() {
        return content;
    }
    format!(
        "{kept}\n[cut: {} of {} bytes shown]",
        kept.len(),
        content.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_on_a_character_boundary_and_says_so() {
        assert_eq!(cut_to_fit("short".into(), 5), "short");
        assert_eq!(
            cut_to_fit("漢字".into(), 4),
            "漢\n[cut: 3 of 6 bytes shown]"
        );
        assert_eq!(
            cut_to_fit("\0\0".into(), 11),
            "\0\n[cut: 1 of 2 bytes shown]"
        );
    }
}
