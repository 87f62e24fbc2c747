//! The committed versions of a thread, its transcript at one, and a thread that was forked there.

use super::thread::event_gist;
use super::{CommandAnswer, ThreadView};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use crate::time_format;
use serde::Serialize;
use serde_json::Value;

/// Events that tell best what a commit was about, in the order in which they are looked for.
const TELLING: [&str; 8] = [
    "message",
    "assistant_text",
    "tool_use",
    "tool_result",
    "suspended",
    "error",
    "note",
    "title",
];

/// One committed version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointRow {
    /// The version.
    pub version: u64,
    /// The thread whose entry it is: on the path of a fork or a link, that of an earlier one.
    pub thread_id: String,
    /// The reason of the commit.
    pub reason: String,
    /// RFC 3339.
    pub time: String,
    /// SHA-256 of the entry.
    pub hash: String,
    /// Tokens that its model call read; none without one.
    pub input_tokens: Option<u64>,
    /// Tokens that its model call wrote.
    pub output_tokens: Option<u64>,
    /// The gist of it, on one line.
    pub text: String,
}

impl CheckpointRow {
    /// Fills in what the stored entry says: tokens, and a line of text.
    pub fn with_entry(mut self, entry: &Value) -> Self {
        let events = entry["events"].as_array().map_or(&[][..], Vec::as_slice);
        let results = events.iter().filter(|event| event["type"] == "result");
        for usage in results.map(|event| &event["usage"]) {
            let of = |kind: &str| usage[kind].as_u64().unwrap_or_default();
            let input = of("input")
                .saturating_add(of("read"))
                .saturating_add(of("write"));
            let sum =
                |sum: Option<u64>, more: u64| Some(sum.unwrap_or_default().saturating_add(more));
            self.input_tokens = sum(self.input_tokens, input);
            self.output_tokens = sum(self.output_tokens, of("output"));
        }
        let named = |kind: &&str| events.iter().find(|event| event["type"] == **kind);
        let gists = TELLING.iter().filter_map(named).map(event_gist);
        self.text = gists
            .into_iter()
            .find(|gist| !gist.is_empty())
            .unwrap_or_default();
        self.text = self.text.replace(['\n', '\r'], " ");
        self
    }

    /// Says on one line which version it is.
    pub fn describe(&self, now: jiff::Timestamp, utc: bool) -> String {
        format!(
            "at version {}: {} {}",
            self.version,
            self.reason,
            time_format::format_shown(&self.time, now, utc)
        )
    }
}

/// The answer of `checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointsAnswer {
    /// The thread.
    pub thread_id: String,
    /// Newest first.
    pub checkpoints: Vec<CheckpointRow>,
    /// Where a further call goes on, as its `--at`; none at the first version of the path.
    pub next: Option<u64>,
    /// The tip of the thread's chain, if it was continued.
    pub continued_in: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
    /// True to show times in UTC.
    #[serde(skip)]
    pub utc: bool,
}

impl CommandAnswer for CheckpointsAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        if self.checkpoints.is_empty() {
            screen.note("nothing was committed to it yet");
            return;
        }
        let (left, right) = (ColumnAlignment::Left, ColumnAlignment::Right);
        let mut table = TextTable::new(&[right, left, left, right, left, left]);
        let is_own = |row: &CheckpointRow| row.thread_id.eq_ignore_ascii_case(&self.thread_id);
        let of = match self.checkpoints.iter().all(is_own) {
            true => "",
            false => "OF",
        };
        table.add_row(&["VERSION", "WHEN", "REASON", "TOKENS", of, ""]);
        let now = screen.now();
        for row in &self.checkpoints {
            let tokens = match (row.input_tokens, row.output_tokens) {
                (None, None) => String::new(),
                (input, output) => {
                    let (input, output) = (input.unwrap_or_default(), output.unwrap_or_default());
                    input.saturating_add(output).to_string()
                }
            };
            let owner = if is_own(row) {
                ""
            } else {
                row.thread_id.as_str()
            };
            table.add_row(&[
                row.version.to_string(),
                time_format::format_shown(&row.time, now, self.utc),
                row.reason.clone(),
                tokens,
                owner.to_owned(),
                row.text.clone(),
            ]);
        }
        for line in table.lines() {
            screen.print_line(&line);
        }
        if let Some(next) = self.next {
            screen.note(&format!("more: --at {next}"));
        }
    }
}

/// The answer of `transcript` with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TranscriptAnswer {
    /// The thread.
    pub thread_id: String,
    /// `markdown`, `jsonl` or `state`.
    pub format: String,
    /// The version that it reaches.
    pub version: u64,
    /// The document.
    pub text: String,
    /// The tip of the thread's chain, if it was continued.
    pub continued_in: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for TranscriptAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        screen.print_text(&self.text);
    }
}

/// The answer of `fork`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForkAnswer {
    /// The new thread.
    pub thread: ThreadView,
    /// The tip of the chain of the other thread, if that was continued.
    pub continued_in: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for ForkAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let id = &self.thread.thread_id;
        screen.print_line(id);
        if let Some(origin) = &self.thread.forked_from {
            screen.note(&format!(
                "it begins as {} was at version {}, and is {}",
                origin.thread_id, origin.version, self.thread.status
            ));
        }
        // Where its version leaves nothing to answer, `resume` needs the message.
        let next = match self.thread.directive {
            Some(_) => format!("threadkeep resume {id} [MESSAGE]"),
            None => format!("threadkeep chat {id}"),
        };
        screen.note(&format!("next: {}", screen.next_step_for(&next)));
    }
}
