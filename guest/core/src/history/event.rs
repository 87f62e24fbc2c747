//! Events: one list for histories, JSONL, hooks and the driver's stream.
//!
//! An event is stored as a JSON object whose `type` names it. Unknown types are kept as they are,
//! so that an older component reads a newer history.

use super::consent_events::{ConsentAsked, DecisionEvent};
use super::stored_blob::{MessageBlock, StoredBlob};
use super::unknown_event::UnknownEvent;
use crate::json::{FromJson, JsonError, JsonValue, ToJson};
use crate::json::{record, words};
use crate::ledger::Usage;
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::thread::StatusCause;

/// Defines the enum, its `type` names, and JSON both ways.
macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($payload:ty) = $name:literal,)*) => {
        /// One event.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $variant($payload),)*
            /// An event of a later version.
            Other(UnknownEvent),
        }

        impl Event {
            /// Returns its `type`.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Other(later) => later.kind(),
                }
            }

            fn write_fields(&self, out: &mut String) {
                match self {
                    $(Self::$variant(payload) => payload.write(out),)*
                    Self::Other(later) => later.write_fields(out),
                }
            }

            fn from_fields(
                kind: &str,
                value: JsonValue<'_>,
                problem: &mut Option<JsonError>,
            ) -> Self {
                match kind {
                    $($name => Self::$variant(FromJson::read(value, problem)),)*
                    _ => Self::Other(UnknownEvent::new(value)),
                }
            }
        }
    };
}

events! {
    /// A user's message, or the assistant's last message of a run.
    Message(Message) = "message",
    /// The model called a tool.
    ToolUse(ToolUse) = "tool_use",
    /// The result of a call.
    ToolResult(ToolResult) = "tool_result",
    /// Text that the assistant wrote beside its calls.
    AssistantText(AssistantText) = "assistant_text",
    /// Thinking of the model.
    Thinking(ThinkingEvent) = "thinking",
    /// Usage and cost of an attempt.
    Result(ResultEvent) = "result",
    /// The run stopped and needs a person or a driver.
    Suspended(SuspendedEvent) = "suspended",
    /// The run went on.
    Resumed(ResumedEvent) = "resumed",
    /// Text of a reply that never finished.
    Partial(PartialEvent) = "partial",
    /// An attempt failed.
    Error(ErrorEvent) = "error",
    /// The run was ended by a cancel or a kill.
    Cancelled(CancelledEvent) = "cancelled",
    /// The usage of an attempt is unknown: it was charged by estimate.
    Charged(ChargedEvent) = "charged",
    /// The real usage of an attempt that had been charged.
    UsageCorrected(UsageCorrected) = "usage_corrected",
    /// Caps were lifted.
    Raised(RaisedEvent) = "raised",
    /// A person decided about a call that needs consent.
    Decision(DecisionEvent) = "decision",
    /// A tool that was called asks for consent itself.
    ConsentAsked(ConsentAsked) = "consent_asked",
    /// The thread got a title.
    Title(TitleEvent) = "title",
    /// An application's own event, which no model is sent.
    Note(NoteEvent) = "note",
    /// A message that neither a person nor a model wrote, and that models are sent.
    ContextInjected(ContextInjected) = "context_injected",
    /// The window of the model is nearly full: a hand-off is due.
    ContextLimitReached(ContextLimitReached) = "context_limit_reached",
    /// The run goes on in another thread, with a part of the conversation.
    ThreadHandoff(ThreadHandoff) = "thread_handoff",
    /// The thread had ended, and its conversation goes on in another thread.
    ThreadResumed(ThreadResumed) = "thread_resumed",
}

impl ToJson for Event {
    fn write(&self, out: &mut String) {
        out.push_str("{\"type\":");
        self.kind().write(out);
        // The payload is an object of its own: its brace becomes the comma before its fields.
        let at = out.len();
        self.write_fields(out);
        if out[at..].starts_with("{}") {
            out.remove(at);
        } else {
            out.replace_range(at..=at, ",");
        }
    }
}

impl FromJson for Event {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        let kind = value.get("type").and_then(JsonValue::as_str);
        let kind = kind.unwrap_or_default().to_owned();
        Self::from_fields(&kind, value, problem)
    }

    fn placeholder() -> Self {
        Self::Title(TitleEvent { title: None })
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageRole {
    /// A person, a scheduler, another agent.
    User,
    /// The model.
    Assistant,
}

words!(MessageRole { User = "user", Assistant = "assistant" });

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Author of the message.
    pub role: MessageRole,
    /// Blocks of the message, in order.
    pub content: Vec<MessageBlock>,
    /// The caller's id of the message.
    pub id: Option<String>,
    /// True for text that neither a user nor a model wrote, such as `(stopped by user)`: it is
    /// never sent to a model.
    pub synthetic: bool,
}

record!(Message { role, content, id or nothing, synthetic or nothing });

impl Message {
    /// Creates a message of one text.
    pub fn text(role: MessageRole, text: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![MessageBlock::Text(text.into())],
            id: None,
            synthetic: false,
        }
    }

    /// Creates a marker of the assistant that no model wrote.
    pub fn synthetic(text: impl Into<String>) -> Self {
        Self {
            synthetic: true,
            ..Self::text(MessageRole::Assistant, text)
        }
    }

    /// Joins the texts of its blocks with newlines; images are named.
    pub fn joined_text(&self) -> String {
        let shown: Vec<_> = self
            .content
            .iter()
            .map(MessageBlock::show_as_text)
            .collect();
        shown.join("\n")
    }
}

/// A call. It is named by the version of its entry and the index of this event, whatever id the
/// model gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The text that the model wrote; it may not be JSON.
    pub arguments: String,
    /// The model's own id of the call.
    pub id: String,
    /// The provider's own JSON, needed to send the call back.
    pub raw: Option<String>,
}

record!(ToolUse { name, arguments, id, raw or nothing });

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolResultState {
    /// It ran.
    Done,
    /// It was not allowed, unknown or malformed: it never ran.
    Denied,
    /// Unknown whether it ran.
    Interrupted,
}

words!(ToolResultState { Done = "done", Denied = "denied", Interrupted = "interrupted" });

/// The one result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Version of the entry that holds the call.
    pub version: u64,
    /// Index of the call in it.
    pub index: u32,
    /// Name of the tool.
    pub name: String,
    /// Text shown to the model.
    pub text: String,
    /// True if it failed.
    pub failed: bool,
    /// Outcome of the call.
    pub state: ToolResultState,
    /// Cost of the call itself.
    pub cost: NanoUsd,
    /// Images, and large results of which `text` shows a part.
    pub blocks: Vec<StoredBlob>,
}

record!(ToolResult {
    version, index, name, text, failed, state, cost or default, blocks or nothing
});

/// Text beside calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistantText {
    /// The text.
    pub text: String,
}

record!(AssistantText { text });

/// A block of thinking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkingEvent {
    /// The readable part.
    pub text: String,
    /// The provider's own JSON, needed to send it back.
    pub raw: Option<String>,
}

record!(ThinkingEvent { text, raw or nothing });

/// Usage and cost of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultEvent {
    /// The model.
    pub model: String,
    /// The provider's word for the end of the reply.
    pub finish: String,
    /// Tokens.
    pub usage: Usage,
    /// Cost of the attempt.
    pub spend: NanoUsd,
    /// Duration in milliseconds.
    pub duration: u64,
    /// True if the provider reported no usage: tokens and cost are estimated from the request and
    /// the reply's text.
    pub estimated: bool,
    /// The provider's id of the reply.
    pub response_id: Option<String>,
    /// The model that answered, as the provider names it.
    pub response_model: Option<String>,
    /// True for the summary of a thread that is handed off: it is no turn.
    pub summary: bool,
}

record!(ResultEvent {
    model, finish, usage, spend, duration, estimated, response_id or nothing,
    response_model or nothing, summary or nothing
});

/// The run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspendedEvent {
    /// Reason of the suspension.
    pub cause: StatusCause,
}

record!(SuspendedEvent { cause });

/// The run went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumedEvent {
    /// Code of the cause that is over.
    pub code: String,
}

record!(ResumedEvent { code });

/// Text of a reply that never finished; never a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialEvent {
    /// The text.
    pub text: String,
    /// True for a summary of a thread that is handed off.
    pub summary: bool,
}

record!(PartialEvent { text, summary or nothing });

/// An attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorEvent {
    /// Kind, as the adapter classified the error.
    pub kind: String,
    /// Code of the error.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
    /// Number of the attempt that failed, from 1.
    pub attempt: u32,
    /// Milliseconds until the next, if there is one.
    pub retry: Option<u64>,
}

record!(ErrorEvent { kind, code, message, attempt, retry or nothing });

/// The run was ended by a cancel or a kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledEvent {
    /// `cancel` or `kill`.
    pub by: String,
}

record!(CancelledEvent { by });

/// An attempt of unknown usage was charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargedEvent {
    /// The version that admitted it.
    pub version: u64,
    /// Amount that is charged.
    pub spend: NanoUsd,
    /// The most that the attempt can have cost: its hold.
    pub most: NanoUsd,
    /// The tokens that the charge is estimated from; `None` if the whole hold is charged.
    pub usage: Option<Usage>,
}

record!(ChargedEvent { version, spend, most, usage or nothing });

/// The real usage of an attempt that had been charged because its usage was unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageCorrected {
    /// The version that admitted it.
    pub version: u64,
    /// Amount that it was charged.
    pub charged: NanoUsd,
    /// Real cost.
    pub spend: NanoUsd,
    /// Real tokens.
    pub usage: Usage,
}

record!(UsageCorrected {
    version,
    charged,
    spend,
    usage
});

/// Caps were lifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaisedEvent {
    /// The caps now in force.
    pub limits: ThreadCaps,
}

record!(RaisedEvent { limits });

/// A title was given or taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TitleEvent {
    /// The title.
    pub title: Option<String>,
}

record!(TitleEvent { title });

/// An application's own event: kept, hashed and exported, and never sent to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteEvent {
    /// The application's name of its kind.
    pub name: String,
    /// Any JSON value.
    pub body: JsonValue<'static>,
}

record!(NoteEvent { name, body });

/// A message that models are sent and that nobody wrote: the context of a hand-off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextInjected {
    /// The role in which models are sent it.
    pub role: MessageRole,
    /// The text.
    pub text: String,
}

record!(ContextInjected { role, text });

/// The next request would take so much of the model's window that the thread is handed off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextLimitReached {
    /// `tokens_used` in parts per million of `tokens_limit`. People and programs are shown a
    /// decimal number.
    pub usage_ratio: u64,
    /// Tokens of the next request.
    pub tokens_used: u64,
    /// Tokens that the model takes.
    pub tokens_limit: u64,
}

record!(ContextLimitReached {
    usage_ratio,
    tokens_used,
    tokens_limit
});

/// The whole, in the parts of [`ContextLimitReached::usage_ratio`].
const RATIO_ONE: u64 = 1_000_000;

impl ContextLimitReached {
    /// Creates the event of so many tokens in a window of so many.
    pub fn new(tokens_used: u64, tokens_limit: u64) -> Self {
        let parts = u128::from(tokens_used) * u128::from(RATIO_ONE);
        let parts = parts / u128::from(tokens_limit.max(1));
        Self {
            usage_ratio: u64::try_from(parts).unwrap_or(u64::MAX),
            tokens_used,
            tokens_limit,
        }
    }

    /// Returns the ratio as a decimal number, such as `0.912`.
    pub fn ratio_text(&self) -> String {
        let (whole, parts) = (self.usage_ratio / RATIO_ONE, self.usage_ratio % RATIO_ONE);
        let text = format!("{whole}.{parts:06}");
        let short = text.trim_end_matches('0');
        match short.ends_with('.') {
            true => format!("{short}0"),
            false => short.to_owned(),
        }
    }
}

/// The entry that closes a link whose run goes on in another thread holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadHandoff {
    /// Id of the next link.
    pub new_thread_id: String,
    /// Turns of the assistant that the next link carries.
    pub trailing_turns: u64,
    /// True if a summary of what is left behind opens the next link.
    pub summary_generated: bool,
    /// Tokens of the summary; 0 without one.
    pub summary_tokens: u64,
    /// Reason why a summary that was wanted is missing.
    pub summary_problem: Option<String>,
}

record!(ThreadHandoff {
    new_thread_id, trailing_turns, summary_generated, summary_tokens, summary_problem or nothing
});

/// The entry that closes a link which had ended and was resumed holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadResumed {
    /// Id of the next link.
    pub new_thread_id: String,
    /// The directive of both links; `None` for a chat.
    pub directive: Option<String>,
    /// The beginning of the message that it was resumed with.
    pub message_preview: String,
    /// Turns of the assistant that the next link carries.
    pub reconstructed_turns: u64,
}

record!(ThreadResumed {
    new_thread_id,
    directive,
    message_preview,
    reconstructed_turns
});

/// Most characters of [`ThreadResumed::message_preview`]; the next link has the whole message.
const PREVIEW_CHARS_MAX: usize = 200;

impl ThreadResumed {
    /// Returns the preview of a message.
    pub fn preview_of(message: &Message) -> String {
        let text = message.joined_text();
        text.chars().take(PREVIEW_CHARS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn events_keep_what_they_hold() {
        for text in [
            r#"{"type":"message","role":"user","content":[{"type":"text","text":"a\u0000b 漢🙂"}]}"#,
            r#"{"type":"tool_use","name":"read","arguments":"{\"a\": 1.50}","id":"x"}"#,
            concat!(
                r#"{"type":"tool_result","version":7,"index":1,"name":"read","text":"t","#,
                r#""failed":false,"state":"done","cost":18446744073709551615}"#
            ),
            concat!(
                r#"{"type":"error","kind":"transient","code":"http_503","message":"m","#,
                r#""attempt":2,"retry":500}"#
            ),
            r#"{"type":"from_tomorrow","n":0.10}"#,
            r#"{"type":"note","name":"acme.step","body":{"n":0.10,"type":"message"}}"#,
        ] {
            let event: Event = json::read(text).unwrap();
            assert_eq!(json::to_text(&event), text);
        }
    }

    #[test]
    fn ratio_is_a_decimal_number_without_floats() {
        for (used, limit, parts, text) in [
            (0, 200_000, 0, "0.0"),
            (180_000, 200_000, 900_000, "0.9"),
            (3_651, 4_000, 912_750, "0.91275"),
            (1, 3, 333_333, "0.333333"),
            (4_000, 4_000, 1_000_000, "1.0"),
            (9, 4, 2_250_000, "2.25"),
            (7, 0, 7_000_000, "7.0"),
            (u64::MAX, 1, u64::MAX, "18446744073709.551615"),
        ] {
            let event = ContextLimitReached::new(used, limit);
            assert_eq!(event.usage_ratio, parts, "{used} of {limit}");
            assert_eq!(event.ratio_text(), text);
        }
    }

    #[test]
    fn preview_is_cut_at_a_character() {
        let message = Message::text(MessageRole::User, "漢".repeat(PREVIEW_CHARS_MAX + 1));
        let preview = ThreadResumed::preview_of(&message);
        assert_eq!(preview, "漢".repeat(PREVIEW_CHARS_MAX));
    }

    #[test]
    fn a_known_type_with_wrong_fields_is_an_error() {
        assert!(json::read::<Event>(r#"{"type":"message","role":"robot","content":[]}"#).is_err());
        assert!(json::read::<Event>(r#"{"type":"partial"}"#).is_err());
    }
}
