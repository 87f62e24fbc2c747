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
    /// Rolling SHA-256 of the messages that a provider sees there.
    prefix: String,
    /// The counts of the window.
    window: WindowCount,
    /// True if these end with something to answer.
    asked: bool,
    /// The version of the entry with the last message of a user.
    asked_version: Option<u64>,
    /// Model replies among the messages.
    replies: u64,
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
            replies: 0,
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
            self.replies += u64::from(assistant);
            self.window.add_message(&message, counted && assistant);
        }
        self.replay_calls(entry);
    }

    /// Writes the conversation into the head of a thread that begins here.
    pub fn write_to(&self, head: &mut Head) {
        head.prefix.clone_from(&self.prefix);
        head.set_window_count(self.window);
        head.asked = self.asked;
        head.asked_version = self.asked_version;
        head.carried_turns = self.replies;
    }

    /// Takes the context that a provider reported with a reply that became a turn; returns true if
    /// it did.
    fn take_reported_context(&mut self, entry: &Entry) -> bool {
        // An external loop settles beside its messages.
        if entry.reason == CommitReason::Settled || !has_usable_reply(entry) {
            return false;
        }
        let mut results = entry.events.iter().filter_map(|event| match event {
            // The request for a summary is another one.
            Event::Result(result) if !result.estimated && !result.summary => Some(result.usage),
            _ => None,
        });
        let Some(usage) = results.next_back() else {
            return false;
        };
        let shown = |event: &Event| matches!(event, Event::Thinking(_));
        self.window.tokens = usage.kept_tokens(entry.events.iter().any(shown));
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

/// Returns true unless the reply in an entry was no turn: all that is kept of it is a partial text,
/// if it has any.
fn has_usable_reply(entry: &Entry) -> bool {
    let mut said = false;
    for event in &entry.events {
        match event {
            // The beginning of a summary is no reply that was given up.
            Event::Partial(partial) if !partial.summary => return false,
            Event::Suspended(suspended) if suspended.cause.is_unusable_reply() => return false,
            Event::Message(_)
            | Event::AssistantText(_)
            | Event::Thinking(_)
            | Event::ToolUse(_) => said = true,
            _ => {}
        }
    }
    // An end that waited takes the place of the suspension.
    said || entry.reason != CommitReason::Cancelled
}
