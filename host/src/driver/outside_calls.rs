//! A call of a model or a tool outside the component, as a step of the driver and an inner run make
//! it: through the permit of its run, with its events, in the form that the component takes.

use super::result_blobs::store_result_blobs;
use super::{Driver, EventSink, RunEvent};
use crate::ceilings::{PendingSettlement, RunPermit, ToolCallOutcome};
use crate::models::ReplyDelta;
use crate::tools::{ToolRequest, ToolResult};
use crate::wit;
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;

/// Most bytes of a partial text that is kept: well under the component's own limit, even for long
/// escapes.
const PARTIAL_BYTES_MAX: usize = 40 << 10;

/// Runs one call of a tool within `left`; the caller waits for the totals.
pub(super) async fn perform_tool_call(
    driver: &Driver,
    (permit, sink): (&RunPermit, &EventSink),
    call: &wit::ToolCall,
    left: Duration,
) -> (wit::ToolOutcome, PendingSettlement) {
    let id = format!("call_{}_{}", call.version, call.index);
    let (name, arguments) = (call.name.clone(), call.arguments.clone());
    sink.emit(RunEvent::ToolStarted {
        call: id.clone(),
        name: name.clone(),
        arguments,
    });
    let longest = Duration::from_millis(call.timeout.into()).min(left);
    let request = ToolRequest {
        name: &call.name,
        arguments: &call.arguments,
        approved: call.approved,
    };
    let called = permit.call_tool_unsettled(&*driver.tools, request, longest);
    let (called, settling) = called.await;
    let ToolCallOutcome {
        mut result,
        interrupted,
    } = called;
    let interrupted = interrupted && !call.idempotent;
    let stored = store_result_blobs(&driver.tenant, call, &mut result).await;
    sink.emit(RunEvent::ToolDone {
        call: id,
        name,
        failed: stored.failed,
        bytes: stored.text.len(),
    });
    let outcome = wit::ToolOutcome {
        version: call.version,
        index: call.index,
        state: outcome_state(interrupted, &result).to_owned(),
        failed: stored.failed,
        content: stored.content(),
        patches: result.patches,
        operations: result.operations,
        cost: result.cost_nanos,
    };
    (outcome, settling)
}

/// Returns what became of a call, as the component is told.
fn outcome_state(interrupted: bool, result: &ToolResult) -> &'static str {
    match (interrupted, result.needs_consent) {
        (true, _) => "interrupted",
        (false, true) => "needs-consent",
        (false, false) => "done",
    }
}

/// Turns a delta into an event; text is also appended to the partial, from the beginning and
/// without gaps.
pub(super) fn delta_event(delta: ReplyDelta, partial: &SleepingMutex<String>) -> Option<RunEvent> {
    Some(match delta {
        ReplyDelta::Text(text) => {
            let mut kept = partial.lock();
            if kept.len() < PARTIAL_BYTES_MAX {
                kept.push_str(&text);
            }
            drop(kept);
            RunEvent::Text(text)
        }
        ReplyDelta::Thinking(text) => RunEvent::Thinking(text),
        ReplyDelta::ToolUse(name) => RunEvent::ToolNamed(name),
        ReplyDelta::Restarted => {
            let mut kept = partial.lock();
            kept.clear();
            drop(kept);
            RunEvent::Restarted
        }
        ReplyDelta::Received(_) => return None,
    })
}

pub(super) fn partial_text(partial: &SleepingMutex<String>) -> String {
    let kept = partial.lock();
    let mut end = kept.len().min(PARTIAL_BYTES_MAX);
    while !kept.is_char_boundary(end) {
        end -= 1;
    }
    kept[..end].to_owned()
}
