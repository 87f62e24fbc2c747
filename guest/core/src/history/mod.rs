//! The history of a thread: entries chained by hash, the events in them, and the messages that a
//! provider is sent.

mod appended_event;
mod charges;
mod consent_events;
mod entry;
mod event;
mod event_blobs;
mod message;
mod stored_blob;
mod unknown_event;
mod user_message;

pub use appended_event::{
    APPEND_BYTES_MAX, APPEND_EVENTS_MAX, AppendedEvent, AppendedResult, check_append_bytes,
    parse_events,
};
pub use charges::UnknownCharges;
pub use consent_events::{ConsentAsked, DecisionEvent};
pub use entry::{
    AdmittedAttempt, CommitReason, CostSource, Entry, RunEnd, SettledHold, StepAnswer,
};
pub use event::{
    AssistantText, CancelledEvent, ChargedEvent, ContextInjected, ContextLimitReached, ErrorEvent,
    Event, Message, MessageRole, NoteEvent, PartialEvent, RaisedEvent, ResultEvent, ResumedEvent,
    SuspendedEvent, ThinkingEvent, ThreadHandoff, ThreadResumed, TitleEvent, ToolResult,
    ToolResultState, ToolUse, UsageCorrected,
};
pub use message::{
    MESSAGE_BYTES_MAX, ProviderRole, ProviderText, call_id, closed_calls, cut_escaped,
    document_messages, escaped_bytes, is_user_text, parse_call_id, provider_messages,
    provider_messages_of, provider_role, provider_texts_of,
};
pub use stored_blob::{
    BLOB_BYTES_MAX, BLOBS_MAX, BlobKind, BlobRecord, IMAGE_TYPES, MessageBlock, StoredBlob,
};
pub use user_message::parse_user;
