//! Every fault that llmock can inject: what the adapter makes of it, that the fault was consumed by exactly one
//! request, and that the identical request goes through afterwards where the fault was transient.

use super::{ask, request, text};
use serde_json::{Value, json};
use std::time::Duration;
use threadkeep::models::openai::OpenAiOptions;
use threadkeep::models::{Block, Delta, FailureKind};
use threadkeep_tests::llmock::Llmock;

/// A fault and what is expected of it.
struct Case {
    name: &'static str,
    behaviors: Value,
    /// As llmock's journal names it.
    fault: &'static str,
    kind: FailureKind,
    code: &'static str,
    partial: &'static str,
    retry_after_ms: Option<u128>,
}

fn options(server: &Llmock) -> OpenAiOptions {
    OpenAiOptions::new(server.base_url())
}

fn fail(status: u16, code: Option<&str>, retry_after: Option<f64>) -> Value {
    let mut fail = json!({"type": "fail", "status": status, "code": code});
    fail["retry_after"] = json!(retry_after);
    json!([fail])
}

/// The stream breaks after the role and two words.
fn broken_stream(kind: &str) -> Value {
    json!([
        {"type": "reply", "text": "one two three four five"},
        {"type": "stream_fault", "kind": kind, "after_chunks": 3, "stall_seconds": 3.0},
    ])
}

async fn check(server: &Llmock, case: Case, options: OpenAiOptions) {
    let name = case.name;
    server.reset();
    server.scenario(&case.behaviors);
    let request = request("How is the weather?");
    let failure = ask(options.clone(), &request).await.0.expect_err(name);
    assert_eq!(
        (failure.kind, failure.code.as_str()),
        (case.kind, case.code),
        "{name}: {failure:?}"
    );
    assert_eq!(failure.partial, case.partial, "{name}");
    assert_eq!(
        failure.retry_after.map(|wait| wait.as_millis()),
        case.retry_after_ms,
        "{name}"
    );
    assert!(failure.sent, "{name}");
    assert_eq!(
        server.pending(),
        [] as [Value; 0],
        "{name}: the fault was not consumed"
    );
    let served = server.requests();
    assert_eq!(served.len(), 1, "{name}: {served:?}");
    assert_eq!(served[0]["fault"], case.fault, "{name}");
    if matches!(case.kind, FailureKind::Transient | FailureKind::RateLimited) {
        tokio::time::sleep(failure.retry_after.unwrap_or_default()).await;
        ask(options, &request).await.0.expect(name);
        let served = server.requests();
        assert_eq!(served.len(), 2, "{name}: {served:?}");
        assert_eq!(
            served[0]["fingerprint"], served[1]["fingerprint"],
            "{name}: another body"
        );
    }
    let findings = server.verdict()["findings"].clone();
    let findings: Vec<&Value> = findings
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finding| !is_expected(finding))
        .collect();
    assert!(findings.is_empty(), "{name}: {findings:?}");
}

/// Three findings say nothing of the adapter. To give up on an exhausted quota, which has a retryable status, is what
/// is wanted. A stream that was sent to its end before llmock saw the adapter hang up counts as read: after a broken
/// chunk because the rest was on its way, after a pause because llmock does not look during it.
fn is_expected(finding: &Value) -> bool {
    ["gave_up", "malformed_chunk_ignored", "no_read_timeout"]
        .iter()
        .any(|code| finding["code"] == *code)
}

fn case(
    name: &'static str,
    behaviors: Value,
    fault: &'static str,
    kind: FailureKind,
    code: &'static str,
) -> Case {
    Case {
        name,
        behaviors,
        fault,
        kind,
        code,
        partial: "",
        retry_after_ms: None,
    }
}

#[tokio::test]
async fn refusals() {
    use FailureKind::{ContextOverflow, Permanent, Quota, RateLimited, Transient};
    let Some(server) = Llmock::start() else {
        return;
    };
    let overflow = fail(400, Some("context_length_exceeded"), None);
    let quota = fail(429, Some("insufficient_quota"), Some(0.0));
    for case in [
        Case {
            retry_after_ms: Some(350),
            ..case(
                "rate limit",
                fail(429, None, Some(0.35)),
                "scenario:429",
                RateLimited,
                "http_429",
            )
        },
        Case {
            retry_after_ms: Some(1_000),
            ..case(
                "unavailable",
                fail(503, None, None),
                "scenario:503",
                Transient,
                "http_503",
            )
        },
        Case {
            retry_after_ms: Some(0),
            ..case(
                "no money",
                quota,
                "scenario:429",
                Quota,
                "insufficient_quota",
            )
        },
        case(
            "overflow",
            overflow,
            "scenario:400",
            ContextOverflow,
            "context_length_exceeded",
        ),
        case(
            "bad key",
            fail(401, None, None),
            "scenario:401",
            Permanent,
            "http_401",
        ),
        case(
            "unknown model",
            fail(404, None, None),
            "scenario:404",
            Permanent,
            "http_404",
        ),
    ] {
        check(&server, case, options(&server)).await;
    }
}

#[tokio::test]
async fn broken_streams() {
    use FailureKind::Transient;
    let Some(server) = Llmock::start() else {
        return;
    };
    let impatient = OpenAiOptions {
        idle_timeout: Duration::from_secs(2),
        ..options(&server)
    };
    for (kind, fault, code) in [
        ("disconnect", "stream:disconnect@3", "disconnected"),
        ("truncate", "stream:truncate@3", "stream_unfinished"),
        ("malformed", "stream:malformed@3", "bad_chunk"),
        ("stall", "stream:stall@3", "stalled"),
    ] {
        let case = Case {
            partial: "one two ",
            ..case(kind, broken_stream(kind), fault, Transient, code)
        };
        check(&server, case, impatient.clone()).await;
    }
}

#[tokio::test]
async fn an_answer_that_does_not_begin() {
    let Some(server) = Llmock::start() else {
        return;
    };
    server.scenario(&json!([{"type": "delay", "seconds": 20.0}]));
    let impatient = OpenAiOptions {
        answer_timeout: Duration::from_secs(1),
        ..options(&server)
    };
    let failure = ask(impatient, &request("Hello"))
        .await
        .0
        .expect_err("nothing was answered");
    assert_eq!(
        (failure.kind, failure.code.as_str()),
        (FailureKind::Transient, "timeout")
    );
    assert!(failure.sent, "it was sent");
    assert_eq!(server.pending(), [] as [Value; 0]);
}

#[tokio::test]
async fn replies_and_a_round_of_tools() {
    let Some(server) = Llmock::start() else {
        return;
    };
    server.scenario(&json!([
        {"type": "reply", "text": "Let me look.", "tool_calls": [
            {"name": "get_weather", "arguments": {"city": "Köln", "days": 3}},
            {"name": "get_weather", "arguments": {"city": "Bonn"}}]},
        {"type": "reply", "text": "It rains in both."},
    ]));
    let mut request = request("How is the weather?");
    let (result, deltas) = ask(options(&server), &request).await;
    let completion = result.expect("a reply with calls");
    assert_eq!(
        (text(&completion).as_str(), completion.finish.as_str()),
        ("Let me look.", "tool_use")
    );
    assert!(
        completion
            .usage
            .is_some_and(|usage| usage.input > 0 && usage.output > 0),
        "{:?}",
        completion.usage
    );
    let begun = Delta::ToolUse("get_weather".into());
    assert_eq!(deltas.iter().filter(|delta| **delta == begun).count(), 2);
    let calls: Vec<&str> = completion.blocks.iter().filter_map(arguments).collect();
    assert_eq!(
        calls,
        [r#"{"city": "K\u00f6ln", "days": 3}"#, r#"{"city": "Bonn"}"#]
    );

    let used = |n: usize| json!({"type": "tool_use", "id": format!("call_2_{n}"), "name": "get_weather", "arguments": calls[n]});
    let result = |n: usize| json!({"type": "tool_result", "id": format!("call_2_{n}"), "name": "get_weather", "text": "rain", "failed": false});
    let said = json!({"type": "text", "text": "Let me look."});
    request
        .messages
        .push(json!({"role": "assistant", "content": [said, used(0), used(1)]}).to_string());
    request
        .messages
        .push(json!({"role": "tool", "content": [result(0), result(1)]}).to_string());
    let completion = ask(options(&server), &request).await.0.expect("the answer");
    assert_eq!(
        (text(&completion).as_str(), completion.finish.as_str()),
        ("It rains in both.", "stop")
    );

    let sent = &server.requests()[1]["body"];
    assert_eq!(
        sent["messages"][2]["tool_calls"][0]["function"]["arguments"],
        calls[0]
    );
    let ids: Vec<&Value> = (3..5)
        .map(|n| &sent["messages"][n]["tool_call_id"])
        .collect();
    assert_eq!(ids, ["call_2_0", "call_2_1"]);
    assert_eq!(sent["stream_options"]["include_usage"], true);
    assert_eq!(server.verdict()["findings"], json!([]));
}

#[tokio::test]
async fn broken_calls_are_replies() {
    let Some(server) = Llmock::start() else {
        return;
    };
    for (kind, name, is_json) in [
        ("malformed_arguments", "get_weather", false),
        ("unknown_tool", "llmock_unknown_tool", true),
    ] {
        server.reset();
        server.scenario(&json!([{"type": "tool_fault", "kind": kind}]));
        let completion = ask(options(&server), &request("How is the weather?"))
            .await
            .0
            .expect(kind);
        let [
            Block::ToolUse {
                name: called,
                arguments,
                ..
            },
        ] = completion.blocks.as_slice()
        else {
            panic!("{kind}: {completion:?}");
        };
        assert_eq!(called, name, "{kind}");
        assert_eq!(
            serde_json::from_str::<Value>(arguments).is_ok(),
            is_json,
            "{kind}: {arguments}"
        );
        assert_eq!(completion.finish, "tool_use", "{kind}");
        assert_eq!(
            server.pending(),
            [] as [Value; 0],
            "{kind}: the fault was not consumed"
        );
    }
}

fn arguments(block: &Block) -> Option<&str> {
    match block {
        Block::ToolUse { arguments, .. } => Some(arguments),
        Block::Text { .. } | Block::Thinking { .. } => None,
    }
}
