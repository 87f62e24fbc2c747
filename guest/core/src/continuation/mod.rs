//! Continuation: the parts of a conversation that a thread hands to the next link of its chain, and
//! the request for a summary of those that it does not.
//!
//! Everything here is computed from entries of a history. The phase of a hand-off is decided in
//! [`crate::runner`].

mod content_size;
mod context_usage;
mod handoff_texts;
mod live_window;
mod summary_request;
mod trailing;
mod transcript_paragraph;

pub use content_size::ContentSize;
pub use context_usage::{ContextUsage, WINDOW_BYTES_MAX, usage_json};
pub use handoff_texts::{CONTINUE_MESSAGE, context_texts, cut_summary};
pub use live_window::{LiveWindow, WindowEntry, WindowNeeds};
pub use summary_request::{SUMMARY_BYTES_MAX, SummaryRequest, SummaryTerms, summary_request};
pub use trailing::{TrailingBounds, TrailingRefusal, TrailingSelection, select_trailing};
pub use transcript_paragraph::is_injected_context;
