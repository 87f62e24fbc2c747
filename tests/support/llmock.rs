//! Starts `llmock`, a third-party server that plays model providers, fails on demand and judges its
//! clients.
//!
//! It is a Python program (`pip install llmock`) by other authors, so its verdict about the adapter
//! is evidence. Without it a test is skipped, with a printed line; in CI the test fails instead.

use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep::models::anthropic::AnthropicProvider;
use threadkeep::models::openai::OpenAiProvider;
use threadkeep::models::{ModelProvider, ProviderOptions, ProviderTimeouts, SecretText};

/// Longest time for a server to start: it is an interpreter, and the machine may be busy.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Most attempts to start a server: another process may take the port after it was found free.
const START_TRIES: usize = 3;
/// Longest time of one request to the control interface, which itself waits up to 2 s for requests
/// in flight.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two events of a stream, as real providers have it. Without a pause a broken
/// stream ends before its client can hang up, and llmock takes it for read.
const EVENT_PAUSE_MILLIS: &str = "20";

/// A wire protocol that both llmock and the host speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MockWire {
    /// Chat completions.
    OpenAi,
    /// Messages.
    Anthropic,
}

impl MockWire {
    /// Both wires.
    pub const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// Its name in `models.yaml`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// Creates an adapter with these time limits: until an answer begins, and between its parts.
    pub fn adapter(
        self,
        base_url: String,
        key: Option<&str>,
        answer: Duration,
        idle: Duration,
    ) -> Arc<dyn ModelProvider> {
        let times = ProviderTimeouts {
            answer,
            idle,
            ..ProviderTimeouts::default()
        };
        let key = key.map(SecretText::new);
        match self {
            Self::OpenAi => {
                let options = ProviderOptions {
                    key,
                    times,
                    ..ProviderOptions::openai(base_url)
                };
                Arc::new(OpenAiProvider::new(options).expect("the options are right"))
            }
            Self::Anthropic => {
                let options = ProviderOptions {
                    key,
                    times,
                    ..ProviderOptions::anthropic(base_url)
                };
                Arc::new(AnthropicProvider::new(options).expect("the options are right"))
            }
        }
    }
}

/// A running server, ended when dropped.
#[derive(Debug)]
pub struct LlmockServer {
    child: Child,
    address: SocketAddr,
}

impl LlmockServer {
    /// Starts a server on a free port of this machine. Returns none, with a printed line, if llmock
    /// is not installed.
    ///
    /// # Panics
    ///
    /// If it does not start, and, where the environment says `CI=true`, also if it is not
    /// installed.
    pub fn start() -> Option<Self> {
        for _ in 0..START_TRIES {
            let address = free_address();
            let child = match spawn(address) {
                Ok(child) => child,
                Err(error) if error.kind() == ErrorKind::NotFound => return skip_test(),
                Err(error) => panic!("llmock cannot be started: {error}"),
            };
            let mut server = Self { child, address };
            if server.is_ready() {
                return Some(server);
            }
        }
        panic!("llmock did not start on {START_TRIES} ports");
    }

    /// Returns the `base_url` that speaks this wire.
    pub fn base_url(&self, wire: MockWire) -> String {
        match wire {
            MockWire::OpenAi => format!("http://{}/v1", self.address),
            MockWire::Anthropic => format!("http://{}/anthropic", self.address),
        }
    }

    /// Queues behaviours: `[{"type": "fail", "status": 429}, ...]`.
    pub fn queue_behaviors(&self, behaviors: &Value) {
        let body = serde_json::json!({ "behaviors": behaviors }).to_string();
        let (status, answer) = self.call_control("POST", "/_llmock/scenario", &body);
        assert_eq!(status, 201, "llmock refuses the scenario: {answer}");
    }

    /// Returns the behaviours that no request has consumed yet.
    pub fn pending(&self) -> Vec<Value> {
        read_list(&self.read("/_llmock/scenario"), "pending")
    }

    /// Returns every request that it served, oldest first.
    pub fn requests(&self) -> Vec<Value> {
        read_list(&self.read("/_llmock/requests"), "requests")
    }

    /// Returns its findings about the client since the last reset, each FAIL and each WARN.
    pub fn findings(&self) -> Vec<Value> {
        read_list(&self.read("/_llmock/verdict"), "findings")
    }

    /// Forgets requests and behaviours.
    pub fn reset(&self) {
        let (status, answer) = self.call_control("POST", "/_llmock/reset", "");
        assert_eq!(status, 200, "llmock does not reset: {answer}");
    }

    /// Waits until the server answers. Returns false if it has ended, for example because the port
    /// was taken.
    fn is_ready(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < START_TIMEOUT {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return false;
            }
            if exchange(self.address, "GET", "/health", "").is_ok_and(|(status, _)| status == 200) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    fn read(&self, path: &str) -> Value {
        let (status, answer) = self.call_control("GET", path, "");
        assert_eq!(status, 200, "llmock does not answer {path}: {answer}");
        serde_json::from_str(&answer).expect("llmock answers JSON")
    }

    fn call_control(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        exchange(self.address, method, path, body).expect("llmock answers")
    }
}

impl Drop for LlmockServer {
    fn drop(&mut self) {
        // The child was not waited for, so its process id is still its own. A child that has ended
        // is no problem.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn skip_test() -> Option<LlmockServer> {
    assert_ne!(
        std::env::var("CI").as_deref(),
        Ok("true"),
        "llmock is not installed, and CI must not skip its tests"
    );
    println!("skipped: llmock is not installed");
    None
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("this machine has a free port");
    listener.local_addr().expect("a listener has an address")
}

fn spawn(address: SocketAddr) -> std::io::Result<Child> {
    let mut command = Command::new("llmock");
    command.args([
        "serve",
        "--host",
        "127.0.0.1",
        "--log-level",
        "warning",
        "--stream-chunk-delay-ms",
        EVENT_PAUSE_MILLIS,
        "--port",
        &address.port().to_string(),
    ]);
    // No configuration of the developer may change the result of a test.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LLMOCK_"))
    {
        command.env_remove(name);
    }
    command
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn read_list(answer: &Value, name: &str) -> Vec<Value> {
    answer[name]
        .as_array()
        .expect("llmock answers a list")
        .clone()
}

/// Sends one request in HTTP/1.0, whose answer ends with the connection.
fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, CONTROL_TIMEOUT)?;
    stream.set_read_timeout(Some(CONTROL_TIMEOUT))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or(ErrorKind::InvalidData)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}
