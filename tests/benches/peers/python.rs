//! A peer in a process of Python (`peers.py`), which is asked line by line.

use super::ConversationStore;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A running peer; it ends with its standard input.
pub struct PythonPeer {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl PythonPeer {
    /// Starts a peer, and asks how durable its writes are.
    ///
    /// # Errors
    /// The reason why it cannot be compared: its packages are missing, or its connection is not as
    /// durable as it was told to be.
    pub fn start(peer: &str, durability: &str, folder: &Path) -> Result<Self, String> {
        let python = std::env::var("THREADKEEP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/peers.py");
        let process = Command::new(&python)
            .arg(script)
            .args([peer, durability])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut process = process.map_err(|error| format!("{python}: {error}"))?;
        let mut started = Self {
            name: peer.to_owned(),
            input: process.stdin.take(),
            output: BufReader::new(process.stdout.take().ok_or("no output")?),
            process,
        };
        let missing = "the packages of tests/benches/peers/requirements.txt are not installed";
        let about = started.ask("about").ok_or(missing)?;
        let expected = if durability == "full" { 2 } else { 1 };
        if about["journal"] != "wal" || about["synchronous"] != expected {
            return Err(format!("its connection is not {durability}: {about}"));
        }
        let version = about["version"].as_str().unwrap_or_default();
        let sqlite = about["sqlite"].as_str().unwrap_or_default();
        started.name = format!("{peer} {version}, SQLite {sqlite}");
        Ok(started)
    }

    /// Sends a line and returns the answer; `None` if the process is gone.
    fn ask(&mut self, line: &str) -> Option<Value> {
        writeln!(self.input.as_mut()?, "{line}").ok()?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).ok()?;
        serde_json::from_str(&answer).ok()
    }

    fn ask_for_time(&mut self, line: &str) -> Duration {
        let answer = self.ask(line).expect("the peer answers");
        Duration::from_secs_f64(answer["seconds"].as_f64().expect("a time"))
    }
}

impl ConversationStore for PythonPeer {
    fn name(&self) -> &str {
        &self.name
    }

    fn turn(&mut self, number: usize, answer: &str) -> Duration {
        let text = Value::from(answer);
        self.ask_for_time(&format!("turn {number} {text}"))
    }

    fn newest(&mut self) -> Duration {
        self.ask_for_time("newest")
    }
}

impl Drop for PythonPeer {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}
