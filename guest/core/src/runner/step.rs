//! The pending step of a head, in the form that a driver gets.

use crate::error::Error;
use crate::history::{Entry, Event};
use crate::settings::PinnedSettings;
use crate::thread::{Head, StepKind};
use crate::time::UnixTime;

/// The next step for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Kind of the step; `None` if the run is finished for now.
    pub kind: Option<StepKind>,
    /// Version that hands the step out.
    pub version: u64,
    /// Time by which it must be done.
    pub deadline: UnixTime,
    /// Most output tokens, for a model call.
    pub output: u64,
    /// SHA-256 of the request, for a model call.
    pub hash: String,
    /// The calls of the round, for tool calls.
    pub calls: Vec<StepCall>,
    /// For a wait: the time at which it ends.
    pub until: Option<UnixTime>,
}

/// One call of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCall {
    /// Version of the entry that holds the call.
    pub version: u64,
    /// Index of the call in it.
    pub index: u32,
    /// Name of the tool.
    pub name: String,
    /// JSON object, as the model wrote it.
    pub arguments: String,
    /// True if the call may be run again.
    pub idempotent: bool,
    /// True if a person has approved the call.
    pub approved: bool,
    /// Longest time of the call in milliseconds.
    pub timeout: u64,
}

/// Returns the pending step. `round` is the entry that holds the calls of the head's round, if it
/// has one.
pub fn pending_step(
    head: &Head,
    pin: Option<&PinnedSettings>,
    round: Option<&Entry>,
) -> Result<Step, Error> {
    let Some(pending) = &head.step else {
        return Ok(Step {
            kind: None,
            version: head.version,
            deadline: head.updated,
            output: 0,
            hash: String::new(),
            calls: Vec::new(),
            until: None,
        });
    };
    let calls = match pending.kind {
        StepKind::CallTools => step_calls(head, pin, round)?,
        StepKind::CallLlm | StepKind::Wait | StepKind::ExternalLoop => Vec::new(),
    };
    Ok(Step {
        kind: Some(pending.kind),
        version: pending.version,
        deadline: pending.deadline,
        output: pending.output,
        hash: pending.hash.clone(),
        calls,
        until: pending.until,
    })
}

fn step_calls(
    head: &Head,
    pin: Option<&PinnedSettings>,
    round: Option<&Entry>,
) -> Result<Vec<StepCall>, Error> {
    let missing = || {
        Error::corrupt(format!(
            "the round that version {} hands out is not there",
            head.version
        ))
    };
    let open = head.round.as_ref().ok_or_else(missing)?;
    let entry = round
        .filter(|entry| entry.version == open.version)
        .ok_or_else(missing)?;
    open.calls
        .iter()
        .filter(|call| call.is_handed_out())
        .map(|call| match entry.events.get(call.index as usize) {
            Some(Event::ToolUse(used)) => Ok(StepCall {
                version: open.version,
                index: call.index,
                name: used.name.clone(),
                arguments: used.arguments.clone(),
                idempotent: call.idempotent,
                approved: call.consent.is_some(),
                timeout: pin
                    .and_then(|pin| pin.find_tool(&used.name))
                    .map_or(crate::settings::TOOL_MILLIS_DEFAULT, |tool| tool.timeout),
            }),
            _ => Err(missing()),
        })
        .collect()
}
