//! The live window of a thread: what its model would be sent now, entry by entry, with the place of
//! each.
//!
//! It is loaded from its end and only as far as a decision needs. So it may begin in the middle of
//! the conversation; what is needed of the part before is then loaded beside it: the group of the
//! last user's message, and what an earlier hand-off put at the beginning.

use super::content_size::ContentSize;
use super::transcript_paragraph::{is_injected_context, transcript_size};
use crate::history::{Entry, Event, ProviderRole, ProviderText, provider_texts_of};

/// Entries of a beginning that is always loaded.
const SHORT_BEGINNING_ENTRIES: u64 = 8;

/// The parts of a live window that a decision needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowNeeds {
    /// The most messages that may be carried.
    pub carried: ContentSize,
    /// The most that the transcript for a summary may have; `None` where no summary is asked for.
    pub transcript: Option<ContentSize>,
}

/// An entry on the path of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowEntry {
    /// The thread whose own entry it is.
    pub thread: String,
    /// Its version.
    pub version: u64,
    /// SHA-256 of its stored text; empty where it is not stored yet.
    pub hash: String,
    /// Its events.
    pub events: Vec<Event>,
    /// The messages that it adds to the conversation, in order.
    pub messages: Vec<ProviderText>,
}

impl WindowEntry {
    /// Makes the entry that a commit is to add.
    pub fn pending(thread: &str, version: u64, events: &[Event]) -> Self {
        Self {
            thread: thread.to_owned(),
            version,
            hash: String::new(),
            messages: provider_texts_of(version, events),
            events: events.to_vec(),
        }
    }

    /// Makes a stored entry from its text and what was read of it.
    pub fn of_stored(thread: &str, entry: Entry, text: &str) -> Self {
        Self {
            thread: thread.to_owned(),
            version: entry.version,
            hash: Entry::hash_of(text),
            messages: provider_texts_of(entry.version, &entry.events),
            events: entry.events,
        }
    }

    /// Sums the sizes of its messages.
    pub fn size(&self) -> ContentSize {
        let sizes = self.messages.iter().map(ContentSize::of_message);
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

    /// Returns true if the program alone wrote its messages: at the beginning of a path they stand
    /// for what an earlier hand-off left out.
    pub fn is_injected(&self) -> bool {
        is_injected_context(&self.events)
    }
}

/// The live window, as far as it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveWindow {
    /// The newest entries of the path without a gap, newest first. They do not include `context`.
    pub newest: Vec<WindowEntry>,
    /// The group of the last user's message where it lies before those, newest first.
    pub asked: Vec<WindowEntry>,
    /// The first entry of the path if it stands for what an earlier hand-off left out. It is never
    /// carried: what the next hand-off puts at the beginning replaces it.
    pub context: Option<WindowEntry>,
    /// Number of entries between the beginning of the path, or `context`, and `newest`.
    pub left: u64,
    needs: WindowNeeds,
    carried: ContentSize,
    transcript: ContentSize,
    has_user_text: bool,
}

impl LiveWindow {
    /// Makes a window of a path of `left` entries, of which none is loaded.
    pub fn new(needs: WindowNeeds, context: Option<WindowEntry>, left: u64) -> Self {
        Self {
            needs,
            context,
            left,
            ..Self::default()
        }
    }

    /// Adds the entry before the oldest one.
    pub fn push_older(&mut self, entry: WindowEntry) {
        self.carried = self.carried.plus(entry.size());
        if self.needs.transcript.is_some() {
            let size = transcript_size(entry.version, &entry.events);
            self.transcript = self.transcript.plus(size);
        }
        self.has_user_text |= entry.has_user_text();
        self.left = self.left.saturating_sub(1);
        self.newest.push(entry);
    }

    /// Returns true if `newest` holds a message of a user.
    pub fn has_user_text(&self) -> bool {
        self.has_user_text
    }

    /// Returns true if the entry before the oldest one is needed. A few at the beginning are loaded
    /// in any case, because they may hold nothing that could be left out.
    pub fn needs_older(&self) -> bool {
        let begun = self.newest.last().is_some_and(WindowEntry::begins_group);
        !begun
            || self.left <= SHORT_BEGINNING_ENTRIES
            || self.carried.fits(self.needs.carried)
            || self
                .needs
                .transcript
                .is_some_and(|most| self.transcript.fits(most))
    }
}
