//! The progress of a run between two lines: for how long it has waited, and what for.

use crate::context::group_digits;
use std::time::{Duration, Instant};

/// Bytes of text for each token, on average, by which tokens of a reply under way are guessed.
const BYTES_PER_TOKEN: u64 = 4;

/// A tool call that runs.
#[derive(Debug)]
struct RunningCall {
    call: String,
    name: String,
    since: Instant,
}

/// The progress of a run since its last request was sent.
#[derive(Debug)]
pub(super) struct RunProgress {
    /// The time at which the run last began to wait for a model.
    asked: Instant,
    /// Ticks since then.
    waited_seconds: u64,
    /// Bytes of the reply under way, thinking included.
    received_bytes: u64,
    /// Tokens of the request under way, as far as they are known.
    pub(super) sent_tokens: u64,
    calls: Vec<RunningCall>,
}

impl Default for RunProgress {
    fn default() -> Self {
        Self {
            asked: Instant::now(),
            waited_seconds: 0,
            received_bytes: 0,
            sent_tokens: 0,
            calls: Vec::new(),
        }
    }
}

impl RunProgress {
    /// A model is about to be asked.
    pub(super) fn begin_request(&mut self) {
        self.asked = Instant::now();
        self.waited_seconds = 0;
        self.received_bytes = 0;
    }

    /// A part of a reply arrived.
    pub(super) fn add_received(&mut self, text: &str) {
        self.received_bytes = self.received_bytes.saturating_add(text.len() as u64);
    }

    /// Returns the time since the model was asked.
    pub(super) fn request_time(&self) -> Duration {
        self.asked.elapsed()
    }

    /// A call begins.
    pub(super) fn begin_call(&mut self, call: &str, name: &str) {
        if self.calls.is_empty() {
            self.waited_seconds = 0;
        }
        self.calls.push(RunningCall {
            call: call.to_owned(),
            name: name.to_owned(),
            since: Instant::now(),
        });
    }

    /// A call ends; returns its time, if its beginning was seen.
    pub(super) fn end_call(&mut self, call: &str) -> Option<Duration> {
        let at = self.calls.iter().position(|one| one.call == call)?;
        let time = self.calls.remove(at).since.elapsed();
        if self.calls.is_empty() {
            self.begin_request();
        }
        Some(time)
    }

    /// Counts a second that has passed.
    pub(super) fn tick(&mut self) {
        self.waited_seconds += 1;
    }

    /// Describes on one line what the run waits for, with seconds and tokens.
    pub(super) fn describe(&self, thinks: bool) -> String {
        let seconds = self.waited_seconds;
        let received = self.received_bytes.div_ceil(BYTES_PER_TOKEN);
        match (&self.calls[..], received, thinks) {
            ([one], ..) => format!("  {} runs, {seconds} s", one.name),
            ([_, ..], ..) => format!("  {} calls run, {seconds} s", self.calls.len()),
            ([], 0, _) if self.sent_tokens == 0 => format!("  waiting, {seconds} s"),
            ([], 0, _) => {
                let sent = group_digits(self.sent_tokens);
                format!("  waiting, {seconds} s, about {sent} tokens sent")
            }
            ([], received, thinks) => {
                let what = if thinks { "thinking" } else { "receiving" };
                let received = group_digits(received);
                format!("  {what}, {seconds} s, about {received} tokens received")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_described_by_what_is_waited_for() {
        let mut progress = RunProgress::default();
        progress.tick();
        assert_eq!(progress.describe(false), "  waiting, 1 s");
        progress.sent_tokens = 1_234;
        progress.tick();
        let sent = "  waiting, 2 s, about 1,234 tokens sent";
        assert_eq!(progress.describe(false), sent);
        progress.add_received("12345");
        let received = "s, about 2 tokens received";
        assert_eq!(progress.describe(true), format!("  thinking, 2 {received}"));
        let text = progress.describe(false);
        assert_eq!(text, format!("  receiving, 2 {received}"));
        progress.begin_call("a", "read_file");
        assert_eq!(progress.describe(false), "  read_file runs, 0 s");
        progress.begin_call("b", "read_file");
        progress.tick();
        assert_eq!(progress.describe(false), "  2 calls run, 1 s");
        assert!(progress.end_call("a").is_some() && progress.end_call("b").is_some());
        assert!(progress.end_call("b").is_none(), "it ended before");
        let sent = "  waiting, 0 s, about 1,234 tokens sent";
        assert_eq!(progress.describe(false), sent, "the next request begins");
    }
}
