//! The history of a thread: entries chained by hash, the events in them, and the messages that a
//! provider is sent.

mod entry;
mod event;
mod given;
mod message;

pub use entry::{Admitted, Answer, Entry, How, Reason, Settled};
pub use event::{
    AssistantText, Cancelled, ChargedEvent, ErrorEvent, Event, Message, Partial, Raised,
    ResultEvent, Resumed, Role, State, Suspended, TextBlock, Thinking, Title, ToolResult, ToolUse,
    UsageCorrected,
};
pub use given::{
    APPEND_BYTES_MAX, APPEND_EVENTS_MAX, Given, GivenResult, check_bytes, parse_events,
};
pub use message::{
    MESSAGE_BYTES_MAX, Speaker, call_id, cut_escaped, escaped_bytes, messages, messages_of,
    parse_user, speaker,
};
