//! Tools outside the component: the trait behind a driver's `call-tools` step, and what a tenant grants.
//!
//! The catalog (name, description, schema, idempotent, consent, time) is what the library hands to the guest; the
//! guest decides which tools a thread may call. The host refuses on its own what the tenant was not granted.

pub mod files;
mod joined;

pub use joined::Joined;

use crate::models::BoxFuture;
use std::time::Duration;

/// Most bytes of one tool result that are kept and shown to a model. Larger ones are cut on a character boundary with
/// a word about it.
pub const RESULT_BYTES_MAX: usize = 64 << 10;

/// Room in a result for the words about what is missing.
const NOTE_BYTES: usize = 512;

/// Most bytes of content that a tool collects before its notes.
const CONTENT_BYTES_MAX: usize = RESULT_BYTES_MAX - NOTE_BYTES;

/// What a catalog says of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolEntry {
    /// `[A-Za-z0-9_-]`, at most 64 bytes.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments, as text.
    pub schema: String,
    /// True if running it twice is the same as running it once: it may be run again after a crash.
    pub idempotent: bool,
    /// True if each call needs a person's consent.
    pub consent: bool,
    /// How long a call may take.
    pub timeout: Duration,
}

/// What a tool answers. A failure of the tool is a result too: the model reads it and goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// What the model is shown.
    pub content: String,
    /// True if the tool failed.
    pub failed: bool,
}

impl ToolResult {
    /// A result.
    pub fn ok(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            failed: false,
        }
    }

    /// A failure, as a sentence that tells the model what to do.
    pub fn failed(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            failed: true,
        }
    }
}

/// The result within [`RESULT_BYTES_MAX`], cut between characters, with a word about it. Our tools stay within it by
/// themselves; this holds for what no tool foresees, and for tools of others.
pub(crate) fn cut(mut content: String) -> String {
    if content.len() > RESULT_BYTES_MAX {
        content.truncate(content.floor_char_boundary(CONTENT_BYTES_MAX));
        content.push_str("\n[the result was cut here; ask for less]");
    }
    content
}

/// A set of tools. Dropping the future abandons the call.
pub trait Tools: Send + Sync {
    /// Every tool that this set has, in a fixed order.
    fn catalog(&self) -> Vec<ToolEntry>;

    /// Run one call. `arguments` is JSON text that parsed as an object. An unknown name is a failed result.
    fn call<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult>;
}
