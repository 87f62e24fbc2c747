//! The live window of a thread: what its model would be sent now, as sizes and roles, with the
//! place of every entry.
//!
//! It is loaded from its end and only as far as a hand-off may carry. So it may end in the middle
//! of the conversation; the group of the last user's message is then loaded beside it.

use super::summary_request::is_injected_context;
use crate::estimate::estimate_tokens;
use crate::history::{Event, ProviderRole, provider_texts_of};

/// Entries of a beginning that is always loaded.
const SHORT_BEGINNING_ENTRIES: u64 = 8;

/// Size of messages as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentSize {
    /// Estimated tokens.
    pub tokens: u64,
    /// Bytes.
    pub bytes: u64,
}

impl ContentSize {
    /// Measures a text.
    pub fn of(text: &str) -> Self {
        Self {
            tokens: estimate_tokens(text),
            bytes: text.len() as u64,
        }
    }

    /// Returns the sum of both sizes.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Returns the size that is left of this one beside another.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Returns true if neither its tokens nor its bytes are above those of `most`.
    pub fn fits(self, most: Self) -> bool {
        self.tokens <= most.tokens && self.bytes <= most.bytes
    }
}

/// A message of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowMessage {
    /// Role in which a model is sent it.
    pub role: ProviderRole,
    /// True for a message of a person, a scheduler or another agent.
    pub is_user_text: bool,
    /// Its size.
    pub size: ContentSize,
}

/// An entry on the path of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowEntry {
    /// The thread whose own entry it is.
    pub thread: String,
    /// Its version.
    pub version: u64,
    /// The messages that it adds to the conversation, in order.
    pub messages: Vec<WindowMessage>,
    /// True if all its messages were written by the program, as those at the beginning of a thread
    /// that another was handed off to.
    pub is_injected: bool,
}

impl WindowEntry {
    /// Makes the entry of a version from its events.
    pub fn new(thread: &str, version: u64, events: &[Event]) -> Self {
        let texts = provider_texts_of(version, events).into_iter();
        let messages = texts.map(|text| WindowMessage {
            role: text.role,
            is_user_text: text.is_user_text,
            size: ContentSize::of(&text.json),
        });
        Self {
            thread: thread.to_owned(),
            version,
            messages: messages.collect(),
            is_injected: is_injected_context(events),
        }
    }

    /// Sums the sizes of its messages.
    pub fn size(&self) -> ContentSize {
        let sizes = self.messages.iter().map(|message| message.size);
        sizes.fold(ContentSize::default(), ContentSize::plus)
    }

    /// Returns true if a conversation may be cut before the entry: it begins with a message that
    /// answers no call.
    pub fn begins_group(&self) -> bool {
        let first = self.messages.first();
        first.is_some_and(|message| message.role != ProviderRole::Tool)
    }

    /// Returns true if one of its messages is of a person, a scheduler or another agent.
    pub fn has_user_text(&self) -> bool {
        self.messages.iter().any(|message| message.is_user_text)
    }
}

/// The live window, as far as it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveWindow {
    /// The newest entries of the path without a gap, newest first.
    pub newest: Vec<WindowEntry>,
    /// The group of the last user's message where it lies before those, newest first.
    pub asked: Vec<WindowEntry>,
    /// True if `newest` reaches to the beginning of the path.
    pub is_whole: bool,
    size: ContentSize,
    has_user_text: bool,
}

impl LiveWindow {
    /// Adds the entry before the oldest one.
    pub fn push_older(&mut self, entry: WindowEntry) {
        self.size = self.size.plus(entry.size());
        self.has_user_text |= entry.has_user_text();
        self.newest.push(entry);
    }

    /// Returns true if `newest` holds a message of a user.
    pub fn has_user_text(&self) -> bool {
        self.has_user_text
    }

    /// Returns true if the entry before the oldest one is needed: it may be carried, too, where
    /// messages of the size `most` may be. `left` is the number of entries before the oldest one: a
    /// few are loaded in any case, because they may hold nothing that could be left out.
    pub fn needs_older(&self, most: ContentSize, left: u64) -> bool {
        let begun = self.newest.last().is_some_and(WindowEntry::begins_group);
        !begun || self.size.fits(most) || left <= SHORT_BEGINNING_ENTRIES
    }
}
