//! Calls of a round that have no result yet.

use crate::history::{Event, ToolResult, ToolResultState, cut_escaped};
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::thread::ToolRound;

/// Gives every open call that `which` picks the result `interrupted`; the others stay open.
pub(super) fn interrupt_calls(
    change: &mut ThreadChange<'_>,
    which: impl Fn(bool) -> bool,
    names: &dyn Fn(u32) -> String,
) {
    let Some(round) = change.head.round.take() else {
        return;
    };
    let parked = change.head.is_parked();
    let (gone, open): (Vec<_>, Vec<_>) = round
        .calls
        .iter()
        .copied()
        .partition(|call| which(call.idempotent));
    for call in gone {
        let place = (round.version, call.index);
        let name = names(call.index);
        let result = match (call.was_not_run(), parked) {
            (true, _) => not_run_result(place, name, "allowed"),
            (false, true) => not_run_result(place, name, "begun"),
            (false, false) => interrupted_result(place, name),
        };
        change.push_event(Event::ToolResult(result));
    }
    if !open.is_empty() {
        change.head.round = Some(ToolRound {
            version: round.version,
            calls: open,
        });
    }
}

/// Returns the result of a call of which nobody knows if it ran.
pub(super) fn interrupted_result((version, index): (u64, u32), name: String) -> ToolResult {
    ToolResult {
        version,
        index,
        name,
        text: "interrupted: nobody knows whether this call ran".into(),
        failed: true,
        state: ToolResultState::Interrupted,
        cost: NanoUsd::ZERO,
        blocks: Vec::new(),
    }
}

/// Returns the result of a call that was not `allowed` or `begun` when its run ended.
fn not_run_result(place: (u64, u32), name: String, lacks: &str) -> ToolResult {
    ToolResult {
        text: format!("not run: the run was ended before the call was {lacks}"),
        state: ToolResultState::Denied,
        ..interrupted_result(place, name)
    }
}

/// Returns the tool name of a call, by the events among which it stands.
pub(super) fn tool_name_of(events: Option<&[Event]>, index: u32) -> String {
    match events.and_then(|events| events.get(index as usize)) {
        Some(Event::ToolUse(call)) => call.name.clone(),
        _ => String::new(),
    }
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
