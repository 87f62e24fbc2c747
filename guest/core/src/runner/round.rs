//! The results of a round of calls, recorded together in the order of the calls.

use super::ROUND_BYTES_MAX;
use super::children::WaitRequest;
use super::open_calls::{cut_to_fit, tool_name_of};
use super::settlement::{count_time, record_tool_cost};
use super::transition::RunTransition;
use crate::error::Error;
use crate::history::{Entry, Event, StoredBlob, ToolResult, ToolResultState};
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
    /// Images, and large results of which the text shows a part.
    pub blocks: Vec<StoredBlob>,
    /// Cost of the call itself.
    pub cost: NanoUsd,
}

record!(write ToolOutcome { version, index, state, failed, content, blocks or nothing, cost });

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
    for outcome in outcomes {
        record_tool_cost(change, outcome.cost);
        change.push_event(Event::ToolResult(ToolResult {
            version: outcome.version,
            index: outcome.index,
            name: tool_name_of(events, outcome.index),
            text: cut_to_fit(outcome.content, share),
            failed: outcome.failed,
            state: if outcome.state == ToolState::Done {
                ToolResultState::Done
            } else {
                ToolResultState::Interrupted
            },
            cost: outcome.cost,
            blocks: outcome.blocks,
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
