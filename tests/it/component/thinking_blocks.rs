//! Fields that a provider adds to a reply, through the adapter, the component and the store and
//! back.

use super::llmock::project_of;
use super::project::describe_draft;
use threadkeep::driver::{EventSink, StopReceiver};
use threadkeep_tests::canned::{CannedServer, SSE};
use threadkeep_tests::llmock::MockWire;

/// A turn that thinks and calls a tool.
const FIRST: [&str; 9] = [
    concat!(
        r#"{"type":"message_start","message":{"usage":{"input_tokens":100,"#,
        r#""cache_creation_input_tokens":1000,"output_tokens":1}}}"#
    ),
    concat!(
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","#,
        r#""thinking":"","signature":""}}"#
    ),
    concat!(
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","#,
        r#""thinking":"\"notes\", "}}"#
    ),
    concat!(
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","#,
        r#""thinking":"perhaps – 漢?"}}"#
    ),
    concat!(
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","#,
        r#""signature":"EqQB/+=="}}"#
    ),
    concat!(
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","#,
        r#""data":"AAEC"}}"#
    ),
    concat!(
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","#,
        r#""name":"read_file","input":{}}}"#
    ),
    concat!(
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","#,
        r#""partial_json":"{\"path\": \"notes.txt\"}"}}"#
    ),
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":50}}"#,
];

/// Its thinking, as the provider's wire writes it without a stream.
const THOUGHT: &str =
    r#"{"type":"thinking","thinking":"\"notes\", perhaps – 漢?","signature":"EqQB/+=="}"#;
const REDACTED: &str = r#"{"type":"redacted_thinking","data":"AAEC"}"#;

/// The answer.
const SECOND: [&str; 3] = [
    concat!(
        r#"{"type":"message_start","message":{"usage":{"input_tokens":10,"#,
        r#""cache_read_input_tokens":1100,"output_tokens":1}}}"#
    ),
    concat!(
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","#,
        r#""text":"It reminds of milk."}}"#
    ),
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":20}}"#,
];

fn answer(events: &[&str]) -> String {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    SSE.to_owned() + &events.collect::<String>()
}

/// Thinking comes back with the tool round byte for byte, the next request begins with the one
/// before it, and cache reads and writes have prices of their own.
#[tokio::test]
async fn thinking_comes_back_verbatim_and_the_cache_is_priced() {
    let server = CannedServer::start(vec![answer(&FIRST), answer(&SECOND)]);
    let (_kept, project) = project_of(MockWire::Anthropic, &server.base_url(MockWire::Anthropic));
    let thread = project.tenant().create(describe_draft()).await.unwrap();
    let ended = project
        .driver()
        .run(&thread.id, None, &EventSink::none(), &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!((ended.status.as_str(), ended.costs.turns), ("completed", 2));
    // Nano-USD a token: input 150, cache read 15, cache write 200, output 600.
    let spend = (100 * 150 + 1_000 * 200 + 50 * 600) + (10 * 150 + 1_100 * 15 + 20 * 600);
    assert_eq!(ended.costs.spend_nanos, spend);
    let sent: Vec<String> = server.requests.try_iter().collect();
    let [before, after] = &sent[..] else {
        panic!("{sent:?}")
    };
    let turn =
        format!(r#"{{"role":"assistant","content":[{THOUGHT},{REDACTED},{{"type":"tool_use","#);
    assert!(after.contains(&turn), "{after}");
    let body = |request: &str| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    let (before, after) = (body(before), body(after));
    let prefix = before.strip_suffix("]}").unwrap();
    assert!(
        after.starts_with(prefix),
        "the cached beginning changed: {before} {after}"
    );
}
