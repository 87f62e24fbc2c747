//! The record of a thread: its definition. Replaced at creation, at the first start, and when the
//! thread ends or gets a title.

use super::ThreadStatus;
use crate::json::record::record;
use crate::limits::ThreadCaps;
use crate::time::UnixTime;

/// Most bytes of the result that a thread's record holds; the whole is in the history.
pub const RESULT_BYTES_MAX: usize = 64 << 10;

/// Stored under the key of the thread's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadRecord {
    /// [`super::FORMAT`].
    pub format: u32,
    /// The id as it was given, case kept.
    pub id: String,
    /// `None` for a chat.
    pub directive: Option<String>,
    /// The thread that spawned it.
    pub parent: Option<String>,
    /// Id of the first link of its chain.
    pub chain: String,
    /// The link before it.
    pub previous: Option<String>,
    /// The link after it.
    pub next: Option<String>,
    /// Owner within the tenant.
    pub agent: Option<String>,
    /// A task of the caller's.
    pub task: Option<String>,
    /// Title for people.
    pub title: Option<String>,
    /// Name of the model or tier that was asked for; once the thread has a pin, the name of the
    /// model in the pin.
    pub model: String,
    /// Caps, as resolved at creation and again at the first start.
    pub limits: ThreadCaps,
    /// Tools that may be called, as resolved at the same times.
    pub capabilities: Vec<String>,
    /// Choices of the creator beyond the directive.
    pub overrides: CreatorOverrides,
    /// JSON object, as text.
    pub inputs: String,
    /// SHA-256 of its pin, once it has one.
    pub pin: Option<String>,
    /// The end status, once it has ended.
    pub outcome: Option<ThreadStatus>,
    /// JSON, as text, once it has a result.
    pub result: Option<String>,
    /// When it was created.
    pub created: UnixTime,
}

record!(ThreadRecord {
    format,
    id,
    directive,
    parent,
    chain,
    previous,
    next,
    agent,
    task,
    title,
    model,
    limits,
    capabilities,
    overrides,
    inputs,
    pin,
    outcome,
    result,
    created
});

/// Choices of the creator: applied again when the directive is resolved at the first start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreatorOverrides {
    /// A model or tier.
    pub model: Option<String>,
    /// Caps chosen by the creator.
    pub limits: ThreadCaps,
    /// A chat's capabilities.
    pub capabilities: Vec<String>,
    /// Bounds inherited from the thread that spawned it, if one did.
    pub within: Option<InheritedBounds>,
}

record!(CreatorOverrides {
    model,
    limits,
    capabilities,
    within or nothing
});

/// Bounds that a child inherits from the thread that spawns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InheritedBounds {
    /// Upper bounds of its caps; the depth is one level less than the parent's.
    pub limits: ThreadCaps,
    /// Tools that it may call at most.
    pub capabilities: Vec<String>,
}

record!(InheritedBounds {
    limits,
    capabilities
});
