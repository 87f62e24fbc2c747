//! Threads as they are listed and shown, their transcripts, and signals to them.

use super::rows::describe_charge;
use super::{
    CheckpointRow, CommandAnswer, StatusCause, ThreadCost, ThreadNeeds, count_noun, optional_spend,
};
use crate::context::ContextFill;
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use crate::{money, time_format};
use serde::Serialize;
use serde_json::Value;

/// A thread that cannot be read, in an answer about several threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableRow {
    /// Its id in lower case.
    pub thread_id: String,
    /// A code, as in an error.
    pub code: String,
    /// The record, and what is wrong with it.
    pub message: String,
}

impl UnreadableRow {
    /// Warns the user that the thread was not told of an end.
    pub fn warn_not_told(&self, screen: &mut OutputScreen) {
        screen.warn(&format!(
            "{} cannot be read and was not told: {} (`threadkeep recover` tries again)",
            thread_or_unnamed(&self.thread_id),
            self.message
        ));
    }

    /// Warns the user of it.
    pub(super) fn warn(&self, screen: &mut OutputScreen) {
        let Self {
            thread_id, message, ..
        } = self;
        let thread = thread_or_unnamed(thread_id);
        screen.warn(&format!("{thread} cannot be read: {message}"));
    }
}

/// The id of a thread at the beginning of a sentence. A record that names none has words instead.
pub fn thread_or_unnamed(thread_id: &str) -> &str {
    match thread_id {
        "" => "a record with an empty or unreadable name",
        id => id,
    }
}

/// Quotes a text as `$'...'`, which common shells read back unchanged.
pub(super) fn quote_for_shell(text: &str) -> String {
    let shown: String = text
        .chars()
        .map(|c| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if u32::from(c) < 0x20 => format!("\\x{:02x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("$'{shown}'")
}

/// Caps in force; none is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LimitsView {
    /// Model calls of a run.
    pub turns: Option<u64>,
    /// Tokens of a run.
    pub tokens: Option<u64>,
    /// Nano-USD of a chain; decimal text in JSON.
    #[serde(serialize_with = "optional_spend")]
    pub spend: Option<u64>,
    /// Child threads.
    pub spawns: Option<u64>,
    /// Levels of children.
    pub depth: Option<u64>,
    /// Milliseconds of a run.
    pub duration: Option<u64>,
}

impl LimitsView {
    /// Formats them on one line for a user.
    pub fn describe(&self) -> String {
        let number = |cap: Option<u64>, noun: &str| cap.map(|cap| count_noun(cap, noun));
        let caps = [
            number(self.turns, "turn"),
            number(self.tokens, "token"),
            self.spend.map(money::format_usd),
            number(self.spawns, "spawn"),
            number(self.depth, "level"),
            self.duration.map(time_format::format_duration),
        ];
        let caps: Vec<String> = caps.into_iter().flatten().collect();
        match caps.is_empty() {
            true => "none".to_owned(),
            false => caps.join(", "),
        }
    }
}

/// The current run of a thread, or its last one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RunView {
    /// The number of the run, from 1; 0 before the first.
    pub number: u64,
    /// The holder of the thread.
    pub holder: Option<String>,
    /// The end of the lease, RFC 3339.
    pub expiry: Option<String>,
    /// The current step.
    pub step: Option<String>,
}

/// The place at which a thread was forked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForkView {
    /// The thread that was forked.
    pub thread_id: String,
    /// The version on its path.
    pub version: u64,
}

/// The state document of a thread, as `show` tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StateView {
    /// The version that changed it last.
    pub version: u64,
    /// Its size as JSON.
    pub bytes: u64,
}

/// One whole thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadView {
    /// Its id.
    pub thread_id: String,
    /// None for a chat.
    pub directive: Option<String>,
    /// Its status.
    pub status: String,
    /// Its outcome, if it has ended.
    pub outcome: Option<String>,
    /// The reason for its status.
    pub cause: Option<StatusCause>,
    /// The need of the thread, if it is suspended.
    pub waits_for: ThreadNeeds,
    /// A title for users.
    pub title: Option<String>,
    /// Its owner.
    pub agent: Option<String>,
    /// A task name of the caller.
    pub task: Option<String>,
    /// The thread that spawned it.
    pub parent: Option<String>,
    /// The first thread of its chain.
    pub chain: String,
    /// The thread that it continues.
    pub previous: Option<String>,
    /// The thread that continues it.
    pub next: Option<String>,
    /// Where it was forked, if it was.
    pub forked_from: Option<ForkView>,
    /// Its state document, if it has one.
    pub state: Option<StateView>,
    /// Number of forks of its chain.
    pub forks: u64,
    /// Model or tier.
    pub model: String,
    /// Caps.
    pub limits: LimitsView,
    /// The tools that it may call.
    pub capabilities: Vec<String>,
    /// Its inputs.
    pub inputs: Value,
    /// Its result.
    pub result: Option<Value>,
    /// Its own cost.
    pub cost: ThreadCost,
    /// Milliseconds spent in steps.
    pub duration: u64,
    /// Tokens of the next request to its model.
    pub context: u64,
    /// Tokens that its model takes; none before its first run.
    pub window: Option<u64>,
    /// Its run.
    pub run: RunView,
    /// Length of its history.
    pub version: u64,
    /// RFC 3339.
    pub created: String,
    /// RFC 3339.
    pub updated: String,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventView {
    /// Version of the entry that holds it.
    pub version: u64,
    /// Its index in that entry.
    pub index: u32,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// RFC 3339.
    pub time: String,
    /// Its stored JSON.
    pub body: Value,
}

/// The answer of `show`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShowAnswer {
    /// The thread.
    pub thread: ThreadView,
    /// The version that was asked for.
    pub at: Option<CheckpointRow>,
    /// Its last events.
    pub events: Vec<EventView>,
    /// The directory of its documents in the project, if it has any.
    pub documents: Option<String>,
    /// The reason why its events cannot be read, if they cannot.
    pub events_problem: Option<String>,
    /// The tip of its chain, if it was continued.
    pub continued_in: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
    /// True to show times in UTC.
    #[serde(skip)]
    pub utc: bool,
}

/// Most characters of an event's text in `show`.
const EVENT_CHARS_MAX: usize = 100;

impl CommandAnswer for ShowAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let mut table = TextTable::new(&[ColumnAlignment::Left, ColumnAlignment::Left]);
        let mut fields = self.thread.fields(screen.now(), self.utc);
        fields.push(("documents", self.documents.clone().unwrap_or_default()));
        for (name, value) in fields {
            if !value.is_empty() {
                table.add_row(&[name, &value]);
            }
        }
        for line in table.lines() {
            screen.print_line(&line);
        }
        if let Some(at) = &self.at {
            screen.print_line("");
            screen.print_line(&at.describe(screen.now(), self.utc));
        }
        if let Some(problem) = &self.events_problem {
            screen.print_line("");
            screen.print_line(&format!("its events cannot be read: {problem}"));
        }
        if self.events.is_empty() {
            return;
        }
        screen.print_line("");
        let mut table = TextTable::new(&[
            ColumnAlignment::Right,
            ColumnAlignment::Left,
            ColumnAlignment::Left,
            ColumnAlignment::Left,
        ]);
        table.add_row(&["EVENT", "WHEN", "TYPE", ""]);
        let now = screen.now();
        for event in &self.events {
            table.add_row(&[
                format!("{}.{}", event.version, event.index),
                time_format::format_shown(&event.time, now, self.utc),
                event.kind.clone(),
                event_gist(&event.body),
            ]);
        }
        for line in table.lines() {
            screen.print_line(&line);
        }
    }
}

impl ThreadView {
    /// Returns names and values for the table; empty values are not shown.
    fn fields(&self, now: jiff::Timestamp, utc: bool) -> Vec<(&'static str, String)> {
        let time = |time: &str| time_format::format_shown(time, now, utc);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let json = |value: &Value| match value {
            Value::Object(object) if object.is_empty() => String::new(),
            Value::Null => String::new(),
            value => value.to_string(),
        };
        let cause = self.cause.as_ref();
        vec![
            ("thread", self.thread_id.clone()),
            ("title", text(&self.title)),
            ("status", self.status.clone()),
            (
                "cause",
                cause.map_or_else(String::new, |cause| {
                    format!("{}: {}", cause.code, cause.message)
                }),
            ),
            ("waits for", self.waits_for.describe()),
            ("directive", text(&self.directive)),
            ("agent", text(&self.agent)),
            ("task", text(&self.task)),
            ("parent", text(&self.parent)),
            ("previous", text(&self.previous)),
            ("continued by", text(&self.next)),
            ("forked from", self.describe_origin()),
            ("forks", self.describe_forks()),
            ("state", self.describe_state()),
            ("model", self.model.clone()),
            ("inputs", json(&self.inputs)),
            ("capabilities", self.capabilities.join(", ")),
            ("limits", self.limits.describe()),
            ("cost", self.cost.describe()),
            ("time in steps", time_format::format_duration(self.duration)),
            ("context", self.describe_context()),
            ("run", self.run.describe(time)),
            ("version", self.version.to_string()),
            ("created", time(&self.created)),
            ("updated", time(&self.updated)),
            (
                "result",
                self.result.as_ref().map_or_else(String::new, json),
            ),
        ]
    }
}

impl ThreadView {
    /// Says where it was forked; nothing if it was not.
    fn describe_origin(&self) -> String {
        let origin = self.forked_from.as_ref();
        origin.map_or_else(String::new, |origin| {
            format!("{} at version {}", origin.thread_id, origin.version)
        })
    }

    /// Says how large its state is; nothing without one.
    fn describe_state(&self) -> String {
        let state = self.state.as_ref();
        state.map_or_else(String::new, |state| {
            let (bytes, version) = (state.bytes, state.version);
            format!("{bytes} bytes, last changed at version {version}")
        })
    }

    /// Says how many forks its chain has, and how they are listed; nothing without any.
    fn describe_forks(&self) -> String {
        match self.forks {
            0 => String::new(),
            forks => format!("{forks} (threadkeep list --forks {})", self.chain),
        }
    }

    /// Says how full the window of its model is; nothing before its first run.
    fn describe_context(&self) -> String {
        let (tokens, window) = (self.context, self.window);
        ContextFill { tokens, window }
            .describe()
            .unwrap_or_default()
    }
}

impl RunView {
    fn describe(&self, format_time: impl Fn(&str) -> String) -> String {
        let Some(holder) = &self.holder else {
            return self.number.to_string();
        };
        let expiry = self.expiry.as_deref().unwrap_or_default();
        format!(
            "{}, {} under way, held by {holder}, expires {}",
            self.number,
            self.step.as_deref().unwrap_or("no step"),
            format_time(expiry)
        )
    }
}

/// Returns the amount of an event that charges a call of unknown cost, or corrects such a charge.
fn charge_gist(body: &Value) -> Option<String> {
    let amount = |name: &str| body.get(name).and_then(Value::as_u64);
    let spend = amount("spend")?;
    match (amount("most"), amount("charged")) {
        (Some(most), _) => Some(describe_charge(spend, most)),
        (None, Some(charged)) => Some(format!(
            "{} was charged, {} was really spent",
            money::format_usd(charged),
            money::format_usd(spend)
        )),
        (None, None) => None,
    }
}

/// Returns the gist of an event of a chain: the thread that goes on, or how full the context is.
fn chain_gist(body: &Value) -> Option<String> {
    let number = |name: &str| body.get(name).and_then(Value::as_u64);
    if let (Some(used), Some(limit)) = (number("tokens_used"), number("tokens_limit")) {
        return Some(format!("{used} of {limit} tokens are used"));
    }
    let next = body.get("new_thread_id").and_then(Value::as_str)?;
    let preview = body.get("message_preview").and_then(Value::as_str);
    Some(match preview {
        Some(preview) => format!("goes on in {next}: {preview}"),
        None => format!("goes on in {next}"),
    })
}

/// Returns the gist of an event of a call that waited for a person: the call, and the decision with
/// its note, or the tool's reason.
fn decision_gist(body: &Value) -> Option<String> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let (version, index) = (body.get("version")?, body.get("index")?);
    let call = format!("call_{version}_{index}");
    let words = match (text("decision"), text("type")) {
        (Some("approve"), _) => "approved",
        (Some("deny"), _) => "denied",
        (Some("answer"), _) => "answered",
        (None, Some("consent_asked")) => "asks",
        _ => return None,
    };
    let more = text("note")
        .or_else(|| text("text"))
        .filter(|more| !more.is_empty());
    Some(match more {
        Some(more) => format!("{call} {words}: {more}"),
        None => format!("{call} {words}"),
    })
}

/// Returns the gist of a call: the tool, and its arguments as far as they say something.
fn call_gist(body: &Value) -> Option<String> {
    let name = body["name"]
        .as_str()
        .filter(|_| body["type"] == "tool_use")?;
    let arguments = match &body["arguments"] {
        // The text that the model wrote: characters that it escaped are shown.
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(&**text)),
        arguments => arguments.clone(),
    };
    Some(match arguments {
        Value::Null => name.to_owned(),
        Value::Object(object) if object.is_empty() => name.to_owned(),
        Value::String(text) => format!("{name} {text}"),
        arguments => format!("{name} {arguments}"),
    })
}

/// Returns the gist of an event, cut to a line.
pub fn event_gist(body: &Value) -> String {
    let text = ["text", "name", "title", "message", "model", "by", "code"]
        .iter()
        .find_map(|name| body.get(name).and_then(Value::as_str));
    let content = body.pointer("/content/0/text").and_then(Value::as_str);
    let cause = body.pointer("/cause/message").and_then(Value::as_str);
    let told = charge_gist(body).or_else(|| chain_gist(body));
    let decided = decision_gist(body).or_else(|| call_gist(body));
    let text = decided.as_deref().or(text);
    let whole = text.or(content).or(cause).or(told.as_deref());
    let whole = whole.unwrap_or_default();
    let mut shown: String = whole.chars().take(EVENT_CHARS_MAX).collect();
    if shown.len() < whole.len() {
        shown.push('…');
    }
    shown
}

/// The answer of `create` and `title`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadAnswer {
    /// The thread.
    pub thread: ThreadView,
    /// The same thread, if an earlier link of its chain was named.
    pub continued_in: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
    /// True if this command created the thread.
    #[serde(skip)]
    made: bool,
}

impl ThreadAnswer {
    /// The answer about a thread that was just created.
    pub fn for_created(thread: ThreadView) -> Self {
        Self {
            made: true,
            ..Self::for_titled(thread, None)
        }
    }

    /// The answer about a thread whose title was set.
    pub fn for_titled(thread: ThreadView, continued_in: Option<String>) -> Self {
        Self {
            thread,
            continued_in,
            exit: CommandExit::Done,
            made: false,
        }
    }
}

impl CommandAnswer for ThreadAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let id = &self.thread.thread_id;
        match (self.made, &self.thread.directive) {
            (true, directive) => {
                screen.print_line(id);
                let command = if directive.is_some() {
                    "resume"
                } else {
                    "chat"
                };
                let next = format!("threadkeep {command} {id}");
                screen.note(&format!("next: {}", screen.next_step_for(&next)));
            }
            (false, _) => screen.print_line(&match &self.thread.title {
                Some(title) => format!("{id} is called {title:?}"),
                None => format!("{id} has no title"),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
