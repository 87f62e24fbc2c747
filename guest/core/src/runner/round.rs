//! The results of a round of calls, recorded together in the order of the calls.

use super::ROUND_BYTES_MAX;
use super::children::WaitRequest;
use super::open_calls::{cut_to_fit, tool_name_of};
use super::outcome_edits::{ReturnedEdits, add_outcome_edits};
use super::settlement::{count_time, record_tool_cost};
use super::transition::RunTransition;
use crate::error::Error;
use crate::history::{Entry, Event, ToolResult, ToolResultState, call_id};
use crate::json::record::{record, words};
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
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
    /// Patches of the state, as the tool wrote them: a JSON list.
    pub patches: Option<String>,
    /// Operations on the state, as the tool wrote them: a JSON list.
    pub operations: Option<String>,
}

record!(write ToolOutcome {
    version, index, state, failed, content, cost, patches or nothing, operations or nothing
});

/// State of a call, as the driver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// It ran.
    Done,
    /// Unknown whether it ran.
    Interrupted,
}

words!(ToolState { Done = "done", Interrupted = "interrupted" });

/// Records the results of a round; the run goes on with what is open.
pub(super) fn apply_tool_results(
    change: &mut ThreadChange<'_>,
    entry: Option<&Entry>,
    outcomes: Vec<ToolOutcome>,
    wait: Option<WaitRequest>,
) -> Result<RunTransition, Error> {
    let round = change
        .head
        .round
        .clone()
        .ok_or_else(|| Error::Corrupt("a round is pending that has no calls".into()))?;
    check_outcomes(round.version, &round.calls, &outcomes)?;
    count_time(change);
    let events = entry.map(|entry| entry.events.as_slice());
    let share = ROUND_BYTES_MAX / outcomes.len().max(1);
    let name_of = |outcome: &ToolOutcome| tool_name_of(events, outcome.index);
    let names: Vec<String> = outcomes.iter().map(name_of).collect();
    let open = round.calls.iter();
    let open: Vec<String> = open
        .map(|call| call_id(round.version, call.index))
        .collect();
    let returned = outcomes
        .iter()
        .zip(&names)
        .map(|(outcome, name)| ReturnedEdits {
            call: (outcome.version, outcome.index),
            name,
            patches: outcome.patches.as_deref(),
            operations: outcome.operations.as_deref(),
        });
    let notes = add_outcome_edits(change, &returned.collect::<Vec<_>>(), &open)?;
    for ((outcome, name), note) in outcomes.into_iter().zip(names).zip(notes) {
        record_tool_cost(change, outcome.cost);
        change.push_event(Event::ToolResult(ToolResult {
            version: outcome.version,
            index: outcome.index,
            name,
            failed: outcome.failed || note.is_some(),
            text: noted_text(outcome.content, note, share),
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
    Ok(RunTransition::Continue {
        wait,
        tool_millis: 0,
    })
}

/// Cuts the text of a result to its share of the round, with a note after it.
fn noted_text(content: String, note: Option<String>, share: usize) -> String {
    match note {
        None => cut_to_fit(content, share),
        Some(note) => {
            let kept = cut_to_fit(content, share.saturating_sub(note.len()));
            format!("{kept}\n{note}")
        }
    }
}

fn check_outcomes(
    version: u64,
    calls: &[RoundCall],
    outcomes: &[ToolOutcome],
) -> Result<(), Error> {
    let outside = calls.iter().filter(|call| !call.waits);
    let expected: Vec<String> = outside
        .map(|call| format!("{version}/{}", call.index))
        .collect();
    let given: Vec<String> = outcomes
        .iter()
        .map(|outcome| format!("{}/{}", outcome.version, outcome.index))
        .collect();
    if expected == given {
        return Ok(());
    }
    Err(Error::Conflict {
        field: "outcomes",
        expected: format!("[{}]", given.join(", ")),
        actual: format!("[{}]", expected.join(", ")),
    })
}
