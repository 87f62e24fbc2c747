//! The history of a thread: entries chained by hash, the events in them, and the messages that a
//! provider is sent.

mod appended_event;
mod charges;
mod entry;
mod event;
mod message;

pub use appended_event::{
    APPEND_BYTES_MAX, APPEND_EVENTS_MAX, AppendedEvent, AppendedResult, check_append_bytes,
    parse_events,
};
pub use charges::UnknownCharges;
pub use entry::{AdmittedAttempt, CommitReason, CostSource, Entry, SettledHold, StepAnswer};
pub use event::{
    AssistantText, CancelledEvent, ChargedEvent, ContextInjected, ContextLimitReached, ErrorEvent,
    Event, Message, MessageRole, NoteEvent, PartialEvent, RaisedEvent, ResultEvent, ResumedEvent,
    SuspendedEvent, TextBlock, ThinkingEvent, ThreadHandoff, ThreadResumed, TitleEvent, ToolResult,
    ToolResultState, ToolUse, UsageCorrected,
};
pub use message::{
    MESSAGE_BYTES_MAX, ProviderRole, ProviderText, call_id, cut_escaped, document_messages,
    escaped_bytes, is_user_text, parse_user, provider_messages, provider_messages_of,
    provider_role, provider_texts_of,
};
