//! Calls of a reply that the component has answered by itself: those of its built-in tools, and
//! those that it refused, such as of a tool that there is not.

use super::{EventSink, RunEvent};
use crate::tenant::Tenant;
use crate::wit::{llm, runner};
use serde_json::Value;

/// Counts the calls of a reply that the next step does not hand out; 0 for blocks that are no list.
pub(super) fn count_answered(completion: &llm::Completion, next: &runner::Step) -> usize {
    let blocks: Value = serde_json::from_str(&completion.blocks).unwrap_or_default();
    let blocks = blocks.as_array().into_iter().flatten();
    let asked = blocks.filter(|block| block["type"] == "tool_use").count();
    asked.saturating_sub(next.calls.len())
}

/// Reports the calls that the entry of a reply has results for. For listeners only: what cannot be
/// read is left out, and the run goes on.
pub(super) async fn report_answered(tenant: &Tenant, sink: &EventSink, thread: &str, version: u64) {
    let before = version.saturating_sub(1);
    let Ok(page) = tenant.entries(thread, before, 1, None).await else {
        return;
    };
    for entry in page.entries {
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        for event in answered_events(entry.version, &body) {
            sink.emit(event);
        }
    }
}

/// Returns the events for the calls of an entry that have their result in the same entry.
fn answered_events(version: u64, body: &Value) -> Vec<RunEvent> {
    let events = body["events"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let results = events
        .iter()
        .filter(|event| event["type"] == "tool_result" && event["version"] == version);
    results
        .filter_map(|result| {
            let index = usize::try_from(result["index"].as_u64()?).ok()?;
            let asked = events.get(index)?;
            let content = text(result, "text");
            let is_refused = result["state"] == "denied";
            Some(RunEvent::ToolAnswered {
                call: format!("call_{version}_{index}"),
                name: text(asked, "name"),
                arguments: text(asked, "arguments"),
                failed: is_refused || result["failed"] == true,
                bytes: content.len(),
                refusal: is_refused.then_some(content),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_beside_their_calls_are_reported() {
        let body = json!({"events": [
            {"type": "tool_use", "name": "nothing", "arguments": "{\"a\":1}"},
            {"type": "tool_use", "name": "read_file", "arguments": "{}"},
            {"type": "tool_result", "version": 4, "index": 0, "name": "nothing",
             "text": "there is no tool", "state": "denied"},
            {"type": "tool_result", "version": 2, "index": 1, "name": "older", "text": ""},
            {"type": "tool_result", "version": 4, "index": 9, "name": "beyond", "text": ""},
        ]});
        let expected = RunEvent::ToolAnswered {
            call: "call_4_0".to_owned(),
            name: "nothing".to_owned(),
            arguments: "{\"a\":1}".to_owned(),
            failed: true,
            bytes: 16,
            refusal: Some("there is no tool".to_owned()),
        };
        assert_eq!(answered_events(4, &body), [expected]);
        assert_eq!(answered_events(4, &json!(null)), []);
    }
}
