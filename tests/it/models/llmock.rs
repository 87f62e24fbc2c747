//! Every fault that llmock can inject, over both wires: the adapter's result, that exactly one
//! request consumed the fault, that the identical request succeeds afterwards where the fault was
//! transient, and that llmock reports no error of the client.

use super::{WAIT_TIME_MAX, ask, request, text};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use threadkeep::models::{FailureKind, ModelProvider, ReplyBlock, ReplyDelta};
use threadkeep_tests::llmock::{LlmockServer, MockWire};

/// Shortest pause of the runner before a retry. The connection is closed meanwhile: a request to
/// llmock blocks this thread, and llmock counts as a retry only a request that begins after it has
/// seen the earlier attempt end.
const BACKOFF: Duration = Duration::from_millis(500);

/// A fault and its expected effect.
struct AdapterFaultCase {
    name: String,
    behaviors: Value,
    /// Name of the fault in llmock's journal.
    fault: String,
    kind: FailureKind,
    code: String,
    partial: &'static str,
    retry_after_ms: Option<u128>,
}

fn adapter(server: &LlmockServer, wire: MockWire) -> Arc<dyn ModelProvider> {
    wire.adapter(server.base_url(wire), None, WAIT_TIME_MAX, WAIT_TIME_MAX)
}

async fn check(
    server: &LlmockServer,
    wire: MockWire,
    case: AdapterFaultCase,
    llm: &dyn ModelProvider,
) {
    let name = format!("{}, {}", wire.as_str(), case.name);
    server.reset();
    server.queue_behaviors(&case.behaviors);
    let request = request("How is the weather?");
    let failure = ask(llm, &request).await.0.expect_err(&name);
    tokio::time::sleep(failure.retry_after.unwrap_or_default().max(BACKOFF)).await;
    assert_eq!(
        (failure.kind, failure.code.as_str()),
        (case.kind, case.code.as_str()),
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
        ask(llm, &request).await.0.expect(&name);
        let served = server.requests();
        assert_eq!(served.len(), 2, "{name}: {served:?}");
        assert_eq!(
            served[0]["fingerprint"], served[1]["fingerprint"],
            "{name}: another body"
        );
    }
    let mut findings = server.findings();
    // The adapter must give up on an exhausted quota, though its status is one that may be retried.
    if case.kind == FailureKind::Quota {
        findings.retain(|finding| finding["code"] != "gave_up");
    }
    assert!(findings.is_empty(), "{name}: {findings:?}");
}

/// A refusal with this status. `code` is the word in its body.
fn refusal_case(status: u16, code: Option<&str>, kind: FailureKind) -> AdapterFaultCase {
    AdapterFaultCase {
        name: format!("{status} {}", code.unwrap_or_default()),
        behaviors: json!([{"type": "fail", "status": status, "code": code}]),
        fault: format!("scenario:{status}"),
        kind,
        code: code.map_or_else(|| format!("http_{status}"), str::to_owned),
        partial: "",
        // llmock itself asks for a second's wait with these.
        retry_after_ms: matches!(status, 429 | 503 | 504 | 529).then_some(1_000),
    }
}

#[tokio::test]
async fn refusals() {
    use FailureKind::{ContextOverflow, Permanent, Quota, RateLimited, Transient};
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for wire in MockWire::ALL {
        let asked = AdapterFaultCase {
            behaviors: json!([{"type": "fail", "status": 429, "retry_after": 0.35}]),
            retry_after_ms: Some(350),
            ..refusal_case(429, None, RateLimited)
        };
        let unpaid = AdapterFaultCase {
            code: "insufficient_quota".to_owned(),
            ..refusal_case(402, None, Quota)
        };
        let transient = [408, 409, 500, 502, 503, 504, 529];
        let permanent = [400, 401, 403, 404, 413, 422];
        let cases = [
            asked,
            unpaid,
            refusal_case(429, None, RateLimited),
            refusal_case(429, Some("insufficient_quota"), Quota),
            refusal_case(400, Some("context_length_exceeded"), ContextOverflow),
        ];
        let cases = cases
            .into_iter()
            .chain(transient.map(|status| refusal_case(status, None, Transient)))
            .chain(permanent.map(|status| refusal_case(status, None, Permanent)));
        let llm = adapter(&server, wire);
        for case in cases {
            check(&server, wire, case, &*llm).await;
        }
    }
}

#[tokio::test]
async fn broken_streams() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for wire in MockWire::ALL {
        let idle = Duration::from_secs(2);
        let llm = wire.adapter(server.base_url(wire), None, WAIT_TIME_MAX, idle);
        // The stream breaks after its beginning and two words.
        let begun = match wire {
            MockWire::OpenAi => 3,
            MockWire::Anthropic => 5,
        };
        for (kind, code) in [
            ("disconnect", "disconnected"),
            ("truncate", "stream_unfinished"),
            ("malformed", "bad_chunk"),
            ("stall", "stalled"),
        ] {
            let case = AdapterFaultCase {
                name: kind.to_owned(),
                behaviors: json!([
                    {"type": "reply", "text": "one two three four five six seven eight nine ten"},
                    {"type": "stream_fault", "kind": kind, "after_chunks": begun,
                        "stall_seconds": 20.0},
                ]),
                fault: format!("stream:{kind}@{begun}"),
                kind: FailureKind::Transient,
                code: code.to_owned(),
                partial: "one two ",
                retry_after_ms: None,
            };
            check(&server, wire, case, &*llm).await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_begins_late_or_not_at_all() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for wire in MockWire::ALL {
        server.reset();
        server.queue_behaviors(&json!([{"type": "slow_first_token", "seconds": 1.0}]));
        let late = ask(&*adapter(&server, wire), &request("Hello")).await.0;
        assert!(late.is_ok(), "{wire:?}: {late:?}");
        server.queue_behaviors(&json!([{"type": "delay", "seconds": 20.0}]));
        let answer = Duration::from_secs(1);
        let llm = wire.adapter(server.base_url(wire), None, answer, WAIT_TIME_MAX);
        let failure = ask(&*llm, &request("Hello"))
            .await
            .0
            .expect_err("nothing was answered");
        assert_eq!(
            (failure.kind, failure.code.as_str()),
            (FailureKind::Transient, "timeout")
        );
        assert!(failure.sent, "it was sent");
        assert_eq!(server.pending(), [] as [Value; 0]);
        assert_eq!(server.findings(), [] as [Value; 0]);
    }
}

#[tokio::test]
async fn replies_and_a_round_of_tools() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for wire in MockWire::ALL {
        server.reset();
        round(&server, wire).await;
        assert_eq!(server.findings(), [] as [Value; 0], "{wire:?}");
    }
}

async fn round(server: &LlmockServer, wire: MockWire) {
    server.queue_behaviors(&json!([
        {"type": "reply", "text": "Let me look.", "tool_calls": [
            {"name": "get_weather", "arguments": {"city": "Köln", "days": 3}},
            {"name": "get_weather", "arguments": {"city": "Bonn"}}]},
        {"type": "reply", "text": "It rains in both."},
    ]));
    let llm = adapter(server, wire);
    let mut request = request("How is the weather?");
    let (result, deltas) = ask(&*llm, &request).await;
    let completion = result.expect("a reply with calls");
    assert_eq!(
        (text(&completion).as_str(), completion.finish.as_str()),
        ("Let me look.", "tool_use")
    );
    assert!(
        completion
            .usage
            .is_some_and(|usage| usage.input > 0 && usage.output > 1),
        "{:?}",
        completion.usage
    );
    let begun = ReplyDelta::ToolUse("get_weather".into());
    assert_eq!(deltas.iter().filter(|delta| **delta == begun).count(), 2);
    let calls: Vec<ReadCall> = completion.blocks.iter().filter_map(read_call).collect();
    assert_eq!(calls[0].arguments, r#"{"city": "K\u00f6ln", "days": 3}"#);
    assert_eq!(calls[1].arguments, r#"{"city": "Bonn"}"#);
    assert_ne!(calls[0].id, calls[1].id, "the server's own ids");

    let used = |n: usize| {
        json!({"type": "tool_use", "id": format!("call_2_{n}"), "name": "get_weather",
            "arguments": calls[n].arguments, "raw": calls[n].raw})
    };
    let result = |n: usize| {
        json!({"type": "tool_result", "id": format!("call_2_{n}"),
        "name": "get_weather", "text": "rain", "failed": n == 1})
    };
    let said = json!({"type": "text", "text": "Let me look."});
    request
        .messages
        .push(json!({"role": "assistant", "content": [said, used(0), used(1)]}).to_string());
    request
        .messages
        .push(json!({"role": "tool", "content": [result(0), result(1)]}).to_string());
    let completion = ask(&*llm, &request).await.0.expect("the answer");
    assert_eq!(
        (text(&completion).as_str(), completion.finish.as_str()),
        ("It rains in both.", "stop")
    );
    let sent = &server.requests()[1]["body"];
    match wire {
        MockWire::OpenAi => sent_to_openai(sent, &calls),
        MockWire::Anthropic => sent_to_anthropic(sent, &calls),
    }
}

fn sent_to_openai(sent: &Value, calls: &[ReadCall]) {
    let sent_calls = &sent["messages"][2]["tool_calls"];
    for (n, call) in calls.iter().enumerate() {
        assert_eq!(sent_calls[n]["id"], call.id, "the id that the server gave");
        assert_eq!(sent_calls[n]["function"]["arguments"], call.arguments);
        assert_eq!(sent["messages"][3 + n]["tool_call_id"], call.id);
    }
    assert_eq!(sent["stream_options"]["include_usage"], true);
}

fn sent_to_anthropic(sent: &Value, calls: &[ReadCall]) {
    let call = |n: usize, input: Value| {
        json!({"type": "tool_use", "id": calls[n].id,
        "name": "get_weather", "input": input})
    };
    let (koeln, bonn) = (json!({"city": "Köln", "days": 3}), json!({"city": "Bonn"}));
    assert_eq!(
        sent["messages"][1]["content"],
        json!([{"type": "text", "text": "Let me look."}, call(0, koeln), call(1, bonn)])
    );
    assert_eq!(
        sent["messages"][2],
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": calls[0].id, "content": "rain"},
            {"type": "tool_result", "tool_use_id": calls[1].id, "content": "rain",
                "is_error": true}]})
    );
    assert_eq!(sent["max_tokens"], 256);
    assert_eq!(
        sent["tools"][0]["input_schema"]["required"],
        json!(["city"])
    );
}

#[tokio::test]
async fn broken_calls_are_replies() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for (kind, name, is_json) in [
        ("malformed_arguments", "get_weather", false),
        ("unknown_tool", "llmock_unknown_tool", true),
    ] {
        for wire in MockWire::ALL {
            server.reset();
            server.queue_behaviors(&json!([{"type": "tool_fault", "kind": kind}]));
            let completion = ask(&*adapter(&server, wire), &request("How is the weather?"))
                .await
                .0
                .expect(kind);
            let [
                ReplyBlock::ToolUse {
                    name: called,
                    arguments,
                    ..
                },
            ] = completion.blocks.as_slice()
            else {
                panic!("{wire:?} {kind}: {completion:?}");
            };
            assert_eq!(called, name, "{wire:?} {kind}");
            assert_eq!(
                serde_json::from_str::<Value>(arguments).is_ok(),
                is_json,
                "{wire:?} {kind}: {arguments}"
            );
            assert_eq!(completion.finish, "tool_use", "{wire:?} {kind}");
            assert_eq!(
                server.pending(),
                [] as [Value; 0],
                "{wire:?} {kind}: the fault was not consumed"
            );
            assert_eq!(server.findings(), [] as [Value; 0], "{wire:?} {kind}");
        }
    }
}

/// A call as the adapter read it.
struct ReadCall<'a> {
    id: &'a str,
    arguments: &'a str,
    raw: Option<&'a str>,
}

fn read_call(block: &ReplyBlock) -> Option<ReadCall<'_>> {
    match block {
        ReplyBlock::ToolUse {
            id, arguments, raw, ..
        } => Some(ReadCall {
            id,
            arguments,
            raw: raw.as_deref(),
        }),
        ReplyBlock::Text { .. } | ReplyBlock::Thinking { .. } => None,
    }
}
