//! Answers written by hand, over both wires.

use super::{WAIT_TIME_MAX, ask, request, text};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::models::{FailureKind, ModelProvider, ReplyDelta, answer_bytes_max};
use threadkeep_tests::canned::{CannedServer, SSE, read_request};
use threadkeep_tests::llmock::MockWire;

const KEY: &str = "sk-test-0123456789abcdef";
const PROMPT: &str = "The turnover of the northern branch fell by eleven percent in May.";

/// A wire's spelling of the parts of every reply.
struct WireWords {
    hello: &'static str,
    /// The finish reason, and on one wire the usage.
    stop: &'static str,
    done: &'static str,
}

fn words(wire: MockWire) -> WireWords {
    match wire {
        MockWire::OpenAi => WireWords {
            hello: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n",
            stop: "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            done: "data: [DONE]\n\n",
        },
        MockWire::Anthropic => WireWords {
            hello: concat!(
                "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,",
                "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,",
                "\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n"
            ),
            stop: concat!(
                "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":",
                "{\"stop_reason\":\"end_turn\"},\
                 \"usage\":{\"input_tokens\":7,\"output_tokens\":2}}\n\n"
            ),
            done: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        },
    }
}

fn adapter(server: &CannedServer, wire: MockWire) -> Arc<dyn ModelProvider> {
    wire.adapter(
        server.base_url(wire),
        Some(KEY),
        WAIT_TIME_MAX,
        WAIT_TIME_MAX,
    )
}

fn refusal(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

async fn check(
    (wire, what): (MockWire, &str),
    answer: String,
    kind: FailureKind,
    code: &str,
    partial: &str,
) {
    let server = CannedServer::start(vec![answer]);
    let failure = ask(&*adapter(&server, wire), &request("Hi"))
        .await
        .0
        .expect_err(what);
    assert_eq!(
        (failure.kind, failure.code.as_str()),
        (kind, code),
        "{wire:?} {what}: {failure:?}"
    );
    assert_eq!(
        (failure.partial.as_str(), failure.sent),
        (partial, true),
        "{wire:?} {what}"
    );
    assert_eq!(
        server.requests.try_iter().count(),
        1,
        "{wire:?} {what}: exactly one request"
    );
}

#[tokio::test]
async fn streams_that_are_no_reply() {
    use FailureKind::{RateLimited, Transient};
    let error =
        r#"data: {"type":"error","error":{"message":"slow down","type":"rate_limit_error"}}"#;
    for wire in MockWire::ALL {
        let WireWords { hello, stop, done } = words(wire);
        let half = stop.trim_end();
        for (what, rest, kind, code) in [
            ("cut", String::new(), Transient, "stream_unfinished"),
            ("done", done.to_owned(), Transient, "stream_unfinished"),
            (
                "half an event",
                half.to_owned(),
                Transient,
                "stream_unfinished",
            ),
            (
                "error",
                format!("{error}\n\n{stop}"),
                RateLimited,
                "stream_error",
            ),
            (
                "no JSON",
                format!("data: {{\n\n{stop}"),
                Transient,
                "bad_chunk",
            ),
        ] {
            let answer = format!("{SSE}{hello}{rest}");
            check((wire, what), answer, kind, code, "Hello").await;
        }
        let empty = SSE.to_owned();
        check((wire, "empty"), empty, Transient, "stream_unfinished", "").await;
    }
}

#[tokio::test]
async fn answers_that_are_no_stream() {
    use FailureKind::{Permanent, Transient};
    let other = refusal("200 OK", r#"{"status":"ready"}"#);
    let error = refusal("200 OK", r#"{"error":"down"}"#);
    let redirect = refusal("302 Found\r\nLocation: /v1/elsewhere", "");
    let huge_header = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "x".repeat(2 << 20));
    let huge_body = refusal("500 Internal Server Error", &"x".repeat(4 << 20));
    for (what, answer, kind, code) in [
        ("none", String::new(), Transient, "disconnected"),
        (
            "a document that is no reply",
            other,
            Permanent,
            "not_a_stream",
        ),
        ("an error with status 200", error, Transient, "stream_error"),
        ("a redirect", redirect, Permanent, "http_302"),
        (
            "a header without end",
            huge_header,
            Transient,
            "disconnected",
        ),
        ("a large error body", huge_body, Transient, "http_500"),
    ] {
        for wire in MockWire::ALL {
            check((wire, what), answer.clone(), kind, code, "").await;
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_where_nothing_listens() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    drop(listener);
    for wire in MockWire::ALL {
        let llm = wire.adapter(base_url.clone(), None, WAIT_TIME_MAX, WAIT_TIME_MAX);
        let failure = ask(&*llm, &request("Hi"))
            .await
            .0
            .expect_err("nobody is there");
        assert_eq!(
            (failure.kind, failure.code.as_str(), failure.sent),
            (FailureKind::Transient, "connect", false)
        );
        assert!(failure.message.contains("refused"), "{}", failure.message);
    }
}

#[tokio::test]
async fn the_finish_reason_makes_a_reply_whole() {
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
    for wire in MockWire::ALL {
        let WireWords { hello, stop, done } = words(wire);
        let stop = match wire {
            MockWire::OpenAi => format!("{stop}{usage}"),
            MockWire::Anthropic => stop.to_owned(),
        };
        let bare = stop
            .replace(usage, "")
            .replace(",\"usage\":{\"input_tokens\":7,\"output_tokens\":2}", "");
        for (what, rest, output) in [
            ("all of it", format!("{stop}{done}"), Some(2)),
            ("no end mark", stop, Some(2)),
            ("no usage", format!("{bare}{done}"), None),
            (
                "cut after the finish reason",
                format!("{bare}data: {{"),
                None,
            ),
        ] {
            let server = CannedServer::start(vec![format!("{SSE}{hello}{rest}")]);
            let completion = ask(&*adapter(&server, wire), &request("Hi"))
                .await
                .0
                .expect(what);
            assert_eq!(
                (text(&completion).as_str(), completion.finish.as_str()),
                ("Hello", "stop"),
                "{wire:?} {what}"
            );
            let counted = completion.usage.map(|usage| usage.output);
            assert_eq!(counted, output, "{wire:?} {what}");
        }
    }
}

#[tokio::test]
async fn the_request_is_what_was_promised() {
    for wire in MockWire::ALL {
        let WireWords { hello, stop, done } = words(wire);
        let server = CannedServer::start(vec![format!("{SSE}{hello}{stop}{done}")]);
        let llm = adapter(&server, wire);
        for _ in 0..2 {
            ask(&*llm, &request("Hi")).await.0.expect("a reply");
        }
        let [first, second]: [String; 2] = server
            .requests
            .try_iter()
            .collect::<Vec<_>>()
            .try_into()
            .expect("two calls, two requests");
        let (line, own) = match wire {
            MockWire::OpenAi => (
                "POST /v1/chat/completions HTTP/1.1\r\n",
                ["authorization: Bearer sk-test-0123456789abcdef\r\n", ""],
            ),
            MockWire::Anthropic => (
                "POST /v1/messages HTTP/1.1\r\n",
                [
                    "x-api-key: sk-test-0123456789abcdef\r\n",
                    "anthropic-version: 2023-06-01\r\n",
                ],
            ),
        };
        assert!(first.starts_with(line), "{first}");
        let both = [
            "content-type: application/json\r\n",
            "accept: text/event-stream\r\n",
        ];
        for header in both.into_iter().chain(own) {
            assert!(first.contains(header), "{header} is missing: {first}");
        }
        assert_eq!(
            first.matches(KEY).count(),
            1,
            "the key stands in one header: {first}"
        );
        assert_eq!(
            first.split_once("\r\n\r\n"),
            second.split_once("\r\n\r\n"),
            "the same request, other bytes"
        );
    }
}

#[tokio::test]
async fn errors_tell_neither_key_nor_prompt() {
    for (said, shown) in [
        ("The model does not exist".to_owned(), true),
        (format!("Incorrect API key provided: {KEY}"), false),
        (format!("Invalid input: {PROMPT}"), false),
    ] {
        let body = serde_json::json!({"type": "error", "error": {"message": said, "type": "bad"}})
            .to_string();
        let stream = format!("{SSE}data: {body}\n\n");
        for answer in [refusal("401 Unauthorized", &body), stream] {
            for wire in MockWire::ALL {
                let server = CannedServer::start(vec![answer.clone()]);
                let failure = ask(&*adapter(&server, wire), &request(PROMPT))
                    .await
                    .0
                    .expect_err("an error");
                let all = format!("{failure} {failure:?}");
                assert!(
                    !all.contains(KEY) && !all.contains("eleven percent"),
                    "{all}"
                );
                assert_eq!(failure.message.contains(&said), shown, "{all}");
            }
        }
    }
}

#[tokio::test]
async fn dropping_the_call_drops_the_connection() {
    for wire in MockWire::ALL {
        let hello = words(wire).hello;
        let server = CannedServer::serve(move |mut stream, requests| {
            let _ = requests.send(read_request(&mut stream));
            let _ = stream.write_all(format!("{SSE}{hello}").as_bytes());
            // Ends when the client hangs up.
            let _ = stream.read_to_end(&mut Vec::new());
            let _ = requests.send("gone".to_owned());
        });
        let llm = adapter(&server, wire);
        let arrived = tokio::sync::Notify::new();
        let request = request("Hi");
        let on_delta = |_| arrived.notify_one();
        tokio::select! {
            result = llm.complete(&request, &on_delta) => panic!("it ended by itself: {result:?}"),
            () = arrived.notified() => {}
        }
        let told = tokio::task::spawn_blocking(move || {
            let wait = Duration::from_secs(30);
            (
                server.requests.recv_timeout(wait),
                server.requests.recv_timeout(wait),
            )
        });
        let (request, gone) = told.await.expect("the wait ends");
        assert!(request.is_ok());
        assert_eq!(gone.as_deref(), Ok("gone"));
    }
}

/// Symptom: a stream of megabytes whose reply was a word was counted as a word. Fix: adapters
/// report the bytes on the wire, and close a stream that is longer than such an answer may be.
#[tokio::test]
async fn all_bytes_of_a_stream_are_told_and_bounded() {
    let received = |deltas: &[ReplyDelta]| -> u64 {
        let bytes = deltas.iter().map(|delta| match delta {
            ReplyDelta::Received(bytes) => *bytes,
            _ => 0,
        });
        bytes.sum()
    };
    let comment = format!(":{}\n\n", "x".repeat(1_000));
    let most = usize::try_from(answer_bytes_max(256)).expect("some megabytes");
    for wire in MockWire::ALL {
        let WireWords { hello, stop, done } = words(wire);
        let body = format!("{hello}{}{stop}{done}", comment.repeat(100));
        let server = CannedServer::start(vec![format!("{SSE}{body}")]);
        let (completion, deltas) = ask(&*adapter(&server, wire), &request("Hi")).await;
        assert_eq!(text(&completion.expect("a reply")), "Hello");
        assert_eq!(received(&deltas), body.len() as u64, "{wire:?}");
        let endless = comment.repeat(most / comment.len() + 1);
        let answer = format!("{SSE}{hello}{endless}{stop}{done}");
        let (kind, code) = (FailureKind::Permanent, "reply_too_large");
        check((wire, "endless"), answer, kind, code, "Hello").await;
    }
}
