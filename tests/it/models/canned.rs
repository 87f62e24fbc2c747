//! Answers written by hand, byte for byte, for what no well-behaved server does.

use super::{ask, request, text};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use threadkeep::models::openai::{OpenAi, OpenAiOptions};
use threadkeep::models::{FailureKind, Llm, Secret};

const KEY: &str = "sk-test-0123456789abcdef";
const PROMPT: &str = "The turnover of the northern branch fell by eleven percent in May.";
const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const STOP: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// A server that gives every connection the same answer, and tells of each request that it has read.
struct Canned {
    base_url: String,
    requests: Receiver<String>,
}

impl Canned {
    fn start(answer: String) -> Self {
        Self::serve(move |mut stream, requests| {
            let _ = requests.send(read_request(&mut stream));
            let _ = stream.write_all(answer.as_bytes());
        })
    }

    /// The thread waits for connections until the test process ends.
    fn serve(each: impl Fn(TcpStream, &Sender<String>) + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|stream| each(stream, &sender))
        });
        Self { base_url, requests }
    }

    fn options(&self) -> OpenAiOptions {
        OpenAiOptions {
            key: Some(Secret::new(KEY)),
            ..OpenAiOptions::new(&self.base_url)
        }
    }
}

/// Head and body of one request.
fn read_request(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let length = text
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next());
        let length = length
            .and_then(|length| length.parse::<usize>().ok())
            .unwrap_or(0);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if read == 0 || body.is_some_and(|body| body >= length) {
            return text;
        }
    }
}

fn refusal(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

async fn check(what: &str, answer: String, kind: FailureKind, code: &str, partial: &str) {
    let server = Canned::start(answer);
    let failure = ask(server.options(), &request("Hi"))
        .await
        .0
        .expect_err(what);
    assert_eq!(
        (failure.kind, failure.code.as_str()),
        (kind, code),
        "{what}: {failure:?}"
    );
    assert_eq!(
        (failure.partial.as_str(), failure.sent),
        (partial, true),
        "{what}"
    );
    assert_eq!(
        server.requests.try_iter().count(),
        1,
        "{what}: exactly one request"
    );
}

#[tokio::test]
async fn streams_that_are_no_reply() {
    use FailureKind::{RateLimited, Transient};
    let error = r#"data: {"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#;
    let half = STOP.trim_end();
    for (what, rest, kind, code) in [
        ("cut", String::new(), Transient, "stream_unfinished"),
        ("done", DONE.to_owned(), Transient, "stream_unfinished"),
        (
            "half an event",
            half.to_owned(),
            Transient,
            "stream_unfinished",
        ),
        (
            "error",
            format!("{error}\n\n{STOP}"),
            RateLimited,
            "stream_error",
        ),
        (
            "no JSON",
            format!("data: {{\n\n{STOP}"),
            Transient,
            "bad_chunk",
        ),
    ] {
        check(what, format!("{SSE}{HELLO}{rest}"), kind, code, "Hello").await;
    }
    check("empty", SSE.to_owned(), Transient, "stream_unfinished", "").await;
}

#[tokio::test]
async fn answers_that_are_no_stream() {
    use FailureKind::{Permanent, Transient};
    let whole = refusal("200 OK", r#"{"choices":[{"message":{"content":"Hello"}}]}"#);
    let error = refusal("200 OK", r#"{"error":"down"}"#);
    let redirect = refusal("302 Found\r\nLocation: /v1/elsewhere", "");
    let huge_header = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "x".repeat(2 << 20));
    let huge_body = refusal("500 Internal Server Error", &"x".repeat(4 << 20));
    for (what, answer, kind, code) in [
        ("none", String::new(), Transient, "disconnected"),
        ("a whole reply", whole, Permanent, "not_a_stream"),
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
        check(what, answer, kind, code, "").await;
    }
}

#[tokio::test]
async fn nothing_is_sent_where_nothing_listens() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    drop(listener);
    let failure = ask(OpenAiOptions::new(base_url), &request("Hi"))
        .await
        .0
        .expect_err("nobody is there");
    assert_eq!(
        (failure.kind, failure.code.as_str(), failure.sent),
        (FailureKind::Transient, "connect", false)
    );
    assert!(failure.message.contains("refused"), "{}", failure.message);
}

#[tokio::test]
async fn the_finish_reason_makes_a_reply_whole() {
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
    for (what, answer, input) in [
        (
            "all of it",
            format!("{SSE}{HELLO}{STOP}{usage}{DONE}"),
            Some(7),
        ),
        ("no end mark", format!("{SSE}{HELLO}{STOP}{usage}"), Some(7)),
        ("no usage", format!("{SSE}{HELLO}{STOP}{DONE}"), None),
        (
            "cut after the finish reason",
            format!("{SSE}{HELLO}{STOP}data: {{"),
            None,
        ),
    ] {
        let server = Canned::start(answer);
        let completion = ask(server.options(), &request("Hi")).await.0.expect(what);
        assert_eq!(
            (text(&completion).as_str(), completion.finish.as_str()),
            ("Hello", "stop"),
            "{what}"
        );
        assert_eq!(completion.usage.map(|usage| usage.input), input, "{what}");
    }
}

#[tokio::test]
async fn the_request_is_what_was_promised() {
    let server = Canned::start(format!("{SSE}{HELLO}{STOP}{DONE}"));
    for _ in 0..2 {
        ask(server.options(), &request("Hi"))
            .await
            .0
            .expect("a reply");
    }
    let [first, second]: [String; 2] = server
        .requests
        .try_iter()
        .collect::<Vec<_>>()
        .try_into()
        .expect("two calls, two requests");
    assert!(
        first.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
        "{first}"
    );
    for header in [
        "content-type: application/json",
        "accept: text/event-stream",
        "authorization: Bearer sk-test-",
    ] {
        assert!(first.contains(header), "{header} is missing: {first}");
    }
    assert_eq!(
        first.split_once("\r\n\r\n"),
        second.split_once("\r\n\r\n"),
        "the same request, other bytes"
    );
}

#[tokio::test]
async fn errors_tell_neither_key_nor_prompt() {
    for (said, shown) in [
        ("The model does not exist".to_owned(), true),
        (format!("Incorrect API key provided: {KEY}"), false),
        (format!("Invalid input: {PROMPT}"), false),
    ] {
        let body = serde_json::json!({"error": {"message": said, "code": "bad"}}).to_string();
        let stream = format!("{SSE}data: {body}\n\n");
        for answer in [refusal("401 Unauthorized", &body), stream] {
            let server = Canned::start(answer);
            let failure = ask(server.options(), &request(PROMPT))
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

#[tokio::test]
async fn dropping_the_call_drops_the_connection() {
    let server = Canned::serve(|mut stream, requests| {
        let _ = requests.send(read_request(&mut stream));
        let _ = stream.write_all(format!("{SSE}{HELLO}").as_bytes());
        // Ends when the client hangs up.
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = requests.send("gone".to_owned());
    });
    let llm = OpenAi::new(server.options()).expect("the options are right");
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
