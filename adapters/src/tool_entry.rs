//! A tool as a catalog lists it.

use std::time::Duration;

/// A tool in a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolEntry {
    /// `[A-Za-z0-9_-]`, at most 64 bytes.
    pub name: String,
    /// A description for the model.
    pub description: String,
    /// JSON Schema of the arguments, as text.
    pub schema: String,
    /// True if a repeated call has the effect of a single one: it may be run again after a crash.
    pub idempotent: bool,
    /// True if each call needs a person's consent.
    pub consent: bool,
    /// Longest time of a call.
    pub timeout: Duration,
}

impl ToolEntry {
    /// Makes the entry of a tool whose calls have effects, need no consent, and take at most
    /// `timeout`. `schema` is the JSON Schema of the arguments, as text.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        schema: impl Into<String>,
        timeout: Duration,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema: schema.into(),
            idempotent: false,
            consent: false,
            timeout,
        }
    }

    /// Marks a repeated call as having the effect of a single one.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Marks each call as needing a person's consent.
    #[must_use]
    pub fn with_consent(mut self) -> Self {
        self.consent = true;
        self
    }
}
