//! The state to which the entries of a path lead: the messages that a model would be sent there,
//! and the calls that are open.
//!
//! A head has this for the newest version only. A fork begins at an earlier one, so it is computed
//! anew from the entries.

use super::{Head, WindowCount};
use crate::hash;
use crate::history::{CommitReason, Entry, Event, ProviderRole, is_user_text, provider_texts_of};

/// A call that has no result yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredCall {
    /// Version of the entry that holds it.
    pub version: u64,
    /// Its index in that entry.
    pub index: u32,
    /// Name of the tool.
    pub name: String,
}

/// The state after the entries that were replayed so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathReplay {
    /// As [`Head::prefix`].
    prefix: String,
    /// The counts of the window.
    window: WindowCount,
    /// As [`Head::asked`].
    asked: bool,
    /// As [`Head::asked_version`].
    asked_version: Option<u64>,
    /// Calls without a result, in order.
    pub open: Vec<UnansweredCall>,
    /// The version that follows, while the path has left none out.
    next: Option<u64>,
}

impl PathReplay {
    /// Begins before the first entry of a path. `fixed` counts the prompt and tools of its thread.
    pub fn new(fixed: WindowCount) -> Self {
        Self {
            prefix: String::new(),
            window: fixed,
            asked: false,
            asked_version: None,
            open: Vec::new(),
            next: Some(1),
        }
    }

    /// Replays the next entry; `own` says that it is the path's own thread that made it.
    pub fn replay(&mut self, entry: &Entry, own: bool) {
        self.next = self.next.filter(|next| *next == entry.version);
        // The provider has counted the messages of this path and no others: those of a thread that
        // left something out are not the same for the next one.
        let counted = (own || self.next.is_some()) && self.take_reported_context(entry);
        self.next = self.next.map(|next| next + 1);
        if entry.events.iter().any(is_user_text) {
            self.asked_version = Some(entry.version);
        }
        for message in provider_texts_of(entry.version, &entry.events) {
            self.prefix = hash::sha256(&[&self.prefix, &message.json]);
            let assistant = message.role == ProviderRole::Assistant;
            self.asked = !assistant;
            self.window.add_text(&message.json, counted && assistant);
        }
        self.replay_calls(entry);
    }

    /// Writes the conversation into the head of a thread that begins here.
    pub fn write_to(&self, head: &mut Head) {
        head.prefix.clone_from(&self.prefix);
        head.set_window_count(self.window);
        head.asked = self.asked;
        head.asked_version = self.asked_version;
    }

    /// Takes the context that a provider reported with a reply that became a turn; returns true if
    /// it did.
    fn take_reported_context(&mut self, entry: &Entry) -> bool {
        // A reply that is no turn is a partial, and an external loop settles beside its messages.
        let mut reported = None;
        for event in &entry.events {
            match event {
                Event::Partial(_) => return false,
                Event::Result(result) if !result.estimated => reported = Some(result.usage),
                _ => {}
            }
        }
        let Some(usage) = reported.filter(|_| entry.reason != CommitReason::Settled) else {
            return false;
        };
        self.window.tokens = usage.context().saturating_add(usage.output);
        true
    }

    fn replay_calls(&mut self, entry: &Entry) {
        for (index, event) in (0_u32..).zip(&entry.events) {
            match event {
                Event::ToolUse(call) => self.open.push(UnansweredCall {
                    version: entry.version,
                    index,
                    name: call.name.clone(),
                }),
                Event::ToolResult(result) => {
                    let answered = (result.version, result.index);
                    self.open
                        .retain(|call| (call.version, call.index) != answered);
                }
                _ => {}
            }
        }
    }
}
