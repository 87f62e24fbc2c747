//! A model server whose answer to each request is decided by a function, and that keeps every
//! request.
//!
//! Each connection is served on its own thread and closed after its answer. The module also has
//! builders of the chunks and events of answers.

use crate::canned::read_request;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest time that an answer is held at a gate: a test that never opens it fails by itself.
const GATE_TIME_MAX: Duration = Duration::from_secs(120);

/// Decides on the number of the request (from 0), its body, and its path with the query.
type JudgeFunction = dyn Fn(usize, &Value, &str) -> ServerAnswer + Send + Sync;

/// The event that ends a stream on the OpenAI wire.
const DONE: &str = "data: [DONE]\n\n";

/// A request that has arrived.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// Its path, with the query.
    pub path: String,
    /// Its body; null if the body is no JSON.
    pub body: Value,
    head: String,
}

impl SeenRequest {
    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some(Self {
            path: head.split(' ').nth(1)?.to_owned(),
            body: serde_json::from_str(body).unwrap_or_default(),
            head: head.to_owned(),
        })
    }

    /// Returns the value of the header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = headers.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Returns the messages of the conversation.
    pub fn messages(&self) -> Vec<&Value> {
        let messages = self.body["messages"].as_array();
        messages.into_iter().flatten().collect()
    }

    /// Returns the messages of this role.
    pub fn messages_of(&self, role: &str) -> Vec<&Value> {
        let mut messages = self.messages();
        messages.retain(|message| message["role"] == role);
        messages
    }

    /// Returns the calls in messages of the assistant, on the OpenAI wire.
    pub fn calls(&self) -> Vec<&Value> {
        let messages = self.messages_of("assistant").into_iter();
        let calls = messages.filter_map(|message| message["tool_calls"].as_array());
        calls.flatten().collect()
    }

    /// Returns the ids of the calls, in order.
    pub fn call_ids(&self) -> Vec<String> {
        let calls = self.calls().into_iter();
        calls.map(|call| text_of(&call["id"])).collect()
    }

    /// Returns the id and the text of each result, in order, on the OpenAI wire.
    pub fn results(&self) -> Vec<(String, String)> {
        let results = self.messages_of("tool").into_iter();
        let pair = |result: &Value| {
            (
                text_of(&result["tool_call_id"]),
                text_of(&result["content"]),
            )
        };
        results.map(pair).collect()
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A gate at which a judge holds its answer until a test opens it. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct AnswerGate(Arc<(Mutex<bool>, Condvar)>);

impl AnswerGate {
    /// Opens the gate, for good.
    pub fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Waits until the gate is open, at most two minutes; returns false if it is not.
    pub fn wait(&self) -> bool {
        let (open, changed) = &*self.0;
        let open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(open, GATE_TIME_MAX, |open| !*open);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// One piece of an answer's body.
#[derive(Debug, Clone)]
enum AnswerPiece {
    Bytes(Vec<u8>),
    Pause(Duration),
}

/// The answer to one request: a status, headers, and a body in pieces that are sent one by one.
#[derive(Debug, Clone)]
pub struct ServerAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<AnswerPiece>,
}

impl ServerAnswer {
    /// An answer without a body so far.
    pub fn new(status: u16, content_type: &str) -> Self {
        let answer = Self {
            status,
            headers: Vec::new(),
            pieces: Vec::new(),
        };
        answer.with_header("content-type", content_type)
    }

    /// A stream of events without an event so far.
    pub fn stream() -> Self {
        Self::new(200, "text/event-stream")
    }

    /// Closes the connection before the first byte.
    pub fn hang_up() -> Self {
        Self::new(0, "")
    }

    /// A whole JSON document.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json").send_bytes(body.to_string())
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends these bytes as they are.
    #[must_use]
    pub fn send_bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.pieces
            .push(AnswerPiece::Bytes(bytes.as_ref().to_vec()));
        self
    }

    /// Waits for this time before the next piece.
    #[must_use]
    pub fn pause_for(mut self, time: Duration) -> Self {
        self.pieces.push(AnswerPiece::Pause(time));
        self
    }

    /// Sends a chunk of the OpenAI wire.
    #[must_use]
    pub fn send_chunk(self, chunk: &Value) -> Self {
        self.send_bytes(format!("data: {chunk}\n\n"))
    }

    /// Sends several chunks.
    #[must_use]
    pub fn send_chunks(self, chunks: &[Value]) -> Self {
        chunks.iter().fold(self, Self::send_chunk)
    }

    /// Sends an event of the Anthropic wire, under its name.
    #[must_use]
    pub fn send_event(self, event: &Value) -> Self {
        let name = text_of(&event["type"]);
        self.send_bytes(format!("event: {name}\ndata: {event}\n\n"))
    }

    /// Sends several events.
    #[must_use]
    pub fn send_events(self, events: &[Value]) -> Self {
        events.iter().fold(self, Self::send_event)
    }

    /// Sends the end mark of the OpenAI wire.
    #[must_use]
    pub fn send_done(self) -> Self {
        self.send_bytes(DONE)
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        if self.status == 0 {
            return Ok(());
        }
        let headers = self.headers.iter();
        let headers: String = headers
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!(
            "HTTP/1.1 {} Answer\r\n{headers}connection: close\r\n\r\n",
            self.status
        );
        stream.set_nodelay(true)?;
        stream.write_all(head.as_bytes())?;
        for piece in &self.pieces {
            match piece {
                AnswerPiece::Bytes(bytes) => stream.write_all(bytes)?,
                AnswerPiece::Pause(time) => std::thread::sleep(*time),
            }
        }
        Ok(())
    }
}

/// A server on this machine that runs until the test process ends.
#[derive(Debug)]
pub struct JudgeServer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

impl JudgeServer {
    /// Starts a server that answers as the closure decides: on the number of the request (from 0),
    /// its body, and its path with the query.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(
        judge: impl Fn(usize, &Value, &str) -> ServerAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let judge: Arc<JudgeFunction> = Arc::new(judge);
        let seen = Arc::<Mutex<Vec<SeenRequest>>>::default();
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (judge, kept) = (Arc::clone(&judge), Arc::clone(&kept));
                std::thread::spawn(move || serve(stream, &*judge, &kept));
            }
        });
        Self { address, seen }
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<SeenRequest> {
        lock(&self.seen).clone()
    }
}

/// Returns a function that gives the first request the first answer and so on, and every further
/// one the last.
///
/// # Panics
/// If there is no answer.
pub fn answer_in_order(
    answers: Vec<ServerAnswer>,
) -> impl Fn(usize, &Value, &str) -> ServerAnswer + Send + Sync + 'static {
    move |number, _, _| {
        let answer = answers.get(number).or(answers.last());
        answer.expect("at least one answer").clone()
    }
}

fn serve(mut stream: TcpStream, judge: &JudgeFunction, seen: &Mutex<Vec<SeenRequest>>) {
    let Some(request) = SeenRequest::parse(&read_request(&mut stream)) else {
        return;
    };
    let number = {
        let mut seen = lock(seen);
        seen.push(request.clone());
        seen.len() - 1
    };
    let answer = judge(number, &request.body, &request.path);
    // A client that has hung up reads no answer.
    let _ = answer.write(&mut stream);
}

fn lock(seen: &Mutex<Vec<SeenRequest>>) -> MutexGuard<'_, Vec<SeenRequest>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A chunk of the OpenAI wire.
pub fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// A chunk with text.
pub fn text_chunk(text: &str) -> Value {
    chunk(&json!({"content": text}), None)
}

/// A chunk with thinking, in the field where most servers put it.
pub fn thinking_chunk(text: &str) -> Value {
    chunk(&json!({"reasoning_content": text}), None)
}

/// A chunk with pieces of calls.
pub fn calls_chunk(calls: &[Value]) -> Value {
    chunk(&json!({"tool_calls": calls}), None)
}

/// The chunk with the finish reason.
pub fn finish_chunk(word: &str) -> Value {
    chunk(&json!({}), Some(word))
}

/// The chunk with the usage.
pub fn usage_chunk(input: u64, output: u64) -> Value {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output,
        "total_tokens": input + output});
    json!({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": usage})
}

/// A whole stream of the OpenAI wire with its end mark.
pub fn stream_reply(chunks: &[Value]) -> ServerAnswer {
    ServerAnswer::stream().send_chunks(chunks).send_done()
}

/// A reply of text: 100 input and 10 output tokens.
pub fn text_reply(text: &str) -> ServerAnswer {
    stream_reply(&[
        chunk(&json!({"role": "assistant", "content": text}), None),
        finish_chunk("stop"),
        usage_chunk(100, 10),
    ])
}

/// A whole call of `read_file`, as it stands in a chunk.
pub fn read_file_call(index: u64, path: &str, id: &str) -> Value {
    let arguments = json!({"path": path}).to_string();
    json!({"index": index, "id": id, "type": "function",
        "function": {"name": "read_file", "arguments": arguments}})
}

/// A reply of calls: 100 input and 10 output tokens.
pub fn call_reply(calls: &[Value]) -> ServerAnswer {
    stream_reply(&[
        calls_chunk(calls),
        finish_chunk("tool_calls"),
        usage_chunk(100, 10),
    ])
}

/// A refusal with this status and JSON body.
pub fn refuse(status: u16, body: &Value) -> ServerAnswer {
    ServerAnswer::json(status, body)
}

/// The events of a reply of text on the Anthropic wire, the last one `message_stop`: 100 input and
/// 10 output tokens.
pub fn anthropic_events(reason: &str, text: &str) -> Vec<Value> {
    let message = json!({"id": "m1", "type": "message", "role": "assistant", "content": [],
        "model": "m", "usage": {"input_tokens": 100, "output_tokens": 1}});
    vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason},
            "usage": {"output_tokens": 10}}),
        json!({"type": "message_stop"}),
    ]
}
