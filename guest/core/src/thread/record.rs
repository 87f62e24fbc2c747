//! The record of a thread: what it is. Replaced at creation, at the first start, and when it ends or gets a title.

use super::Status;
use crate::json::record::record;
use crate::limits::Limits;
use crate::time::Instant;

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
    /// For people.
    pub title: Option<String>,
    /// Name of the model or tier that was asked for; once it has a pin, of the model that stands there.
    pub model: String,
    /// As resolved at creation, and again at the first start.
    pub limits: Limits,
    /// As resolved, likewise.
    pub capabilities: Vec<String>,
    /// What the creator asked for beyond the directive.
    pub overrides: Overrides,
    /// JSON object, as text.
    pub inputs: String,
    /// SHA-256 of its pin, once it has one.
    pub pin: Option<String>,
    /// The end status, once it has ended.
    pub outcome: Option<Status>,
    /// JSON, as text, once it has a result.
    pub result: Option<String>,
    /// When it was created.
    pub created: Instant,
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

/// What the creator asked for: applied again when the directive is resolved at the first start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// A model or tier.
    pub model: Option<String>,
    /// Caps.
    pub limits: Limits,
    /// A chat's capabilities.
    pub capabilities: Vec<String>,
    /// What the thread that spawned it could do, if one did: it can do no more.
    pub within: Option<Within>,
}

record!(Overrides {
    model,
    limits,
    capabilities,
    within or nothing
});

/// What a child takes over from the thread that spawns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Within {
    /// Upper bounds of its caps; a level of depth less than the parent's.
    pub limits: Limits,
    /// What it may call at most.
    pub capabilities: Vec<String>,
}

record!(Within {
    limits,
    capabilities
});
