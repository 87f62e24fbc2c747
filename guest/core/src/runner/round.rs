//! The results of a round of calls, recorded together in the order of the calls.

use super::ROUND_BYTES_MAX;
use super::checks::slowest_tool_millis;
use super::children::DecisionInputs;
use super::open_calls::{cut_to_fit, tool_name_of};
use super::outcome_edits::{ReturnedEdits, add_outcome_edits};
use super::settlement::{count_time, record_tool_cost};
use super::transition::RunTransition;
use crate::error::Error;
use crate::history::{
    ConsentAsked, Entry, Event, StoredBlob, ToolResult, ToolResultState, call_id,
};
use crate::json::{record, words};
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::settings::PinnedSettings;
use crate::thread::{CallConsent, RoundCall, ToolRound};

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
    /// Patches of the state, as the tool wrote them: a JSON list.
    pub patches: Option<String>,
    /// Operations on the state, as the tool wrote them: a JSON list.
    pub operations: Option<String>,
}

record!(write ToolOutcome {
    version, index, state, failed, content, blocks or nothing, cost, patches or nothing,
    operations or nothing
});

/// State of a call, as the driver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// It ran.
    Done,
    /// Unknown whether it ran.
    Interrupted,
    /// It did not run: the tool asks for a person's consent, and its content says why.
    NeedsConsent,
}

words!(ToolState {
    Done = "done", Interrupted = "interrupted", NeedsConsent = "needs-consent"
});

/// Records the results of a round; the run goes on with what is open.
pub(super) fn apply_tool_results(
    change: &mut ThreadChange<'_>,
    (pin, entry): (&PinnedSettings, Option<&Entry>),
    outcomes: Vec<ToolOutcome>,
    inputs: DecisionInputs,
) -> Result<RunTransition, Error> {
    let round = change
        .head
        .round
        .clone()
        .ok_or_else(|| Error::corrupt("a round is pending that has no calls"))?;
    check_outcomes(round.version, &round.calls, &outcomes)?;
    count_time(change);
    let events = entry.map(|entry| entry.events.as_slice());
    let share = ROUND_BYTES_MAX / outcomes.len().max(1);
    let name_of = |outcome: &ToolOutcome| tool_name_of(events, outcome.index);
    let names: Vec<String> = outcomes.iter().map(name_of).collect();
    let notes = add_edits_of_outcomes(change, &round, &outcomes, &names)?;
    let mut outcomes = outcomes.into_iter().zip(names).zip(notes);
    let mut open = Vec::new();
    for call in round.calls {
        let outcome = match call.is_handed_out() {
            true => outcomes.next(),
            false => None,
        };
        let Some(((outcome, name), note)) = outcome else {
            open.push(call);
            continue;
        };
        record_tool_cost(change, outcome.cost);
        open.extend(record_outcome(change, call, (name, note, share), outcome));
    }
    change.head.round = (!open.is_empty()).then_some(ToolRound {
        version: round.version,
        calls: open,
    });
    Ok(RunTransition::Continue {
        wait: inputs.waiting,
        decided: inputs.decided,
        tool_millis: slowest_tool_millis(pin),
    })
}

/// Adds the changes of the state that tools returned. Returns for each outcome why they were left
/// out, if they were. A call that did not run has none.
fn add_edits_of_outcomes(
    change: &mut ThreadChange<'_>,
    round: &ToolRound,
    outcomes: &[ToolOutcome],
    names: &[String],
) -> Result<Vec<Option<String>>, Error> {
    let open = round.calls.iter();
    let open: Vec<String> = open
        .map(|call| call_id(round.version, call.index))
        .collect();
    let returned = outcomes.iter().zip(names).map(|(outcome, name)| {
        let ran = outcome.state != ToolState::NeedsConsent;
        ReturnedEdits {
            call: (outcome.version, outcome.index),
            name,
            patches: outcome.patches.as_deref().filter(|_| ran),
            operations: outcome.operations.as_deref().filter(|_| ran),
        }
    });
    add_outcome_edits(change, &returned.collect::<Vec<_>>(), &open)
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

/// Records the outcome of a call; returns the call if it stays open, because the tool asks for
/// consent that it was not given.
fn record_outcome(
    change: &mut ThreadChange<'_>,
    call: RoundCall,
    (name, note, share): (String, Option<String>, usize),
    outcome: ToolOutcome,
) -> Option<RoundCall> {
    let (version, index) = (outcome.version, outcome.index);
    let failed = outcome.failed || note.is_some();
    let text = noted_text(outcome.content, note, share);
    let (state, failed, text) = match outcome.state {
        ToolState::Done => (ToolResultState::Done, failed, text),
        ToolState::Interrupted => (ToolResultState::Interrupted, failed, text),
        ToolState::NeedsConsent if call.consent.is_none() => {
            change.push_event(Event::ConsentAsked(ConsentAsked {
                version,
                index,
                name,
                text,
                cost: outcome.cost,
            }));
            return Some(RoundCall {
                idempotent: true,
                consent: Some(CallConsent::Asked),
                ..call
            });
        }
        // It was approved, and a person is not asked twice about one call.
        ToolState::NeedsConsent => {
            let text = format!("not run: the tool asks again for consent: {text}");
            (ToolResultState::Denied, true, text)
        }
    };
    change.push_event(Event::ToolResult(ToolResult {
        version,
        index,
        name,
        text,
        failed,
        state,
        cost: outcome.cost,
        blocks: outcome.blocks,
    }));
    None
}

fn check_outcomes(
    version: u64,
    calls: &[RoundCall],
    outcomes: &[ToolOutcome],
) -> Result<(), Error> {
    let outside = calls.iter().filter(|call| call.is_handed_out());
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
    Err(Error::conflict(
        "outcomes",
        format!("[{}]", given.join(", ")),
        format!("[{}]", expected.join(", ")),
    ))
}
