//! Conversations that a driver keeps from one run of a thread to the next, so that a message to a
//! long thread does not read all of it again.
//!
//! What is kept ends with an entry whose hash is known. A run takes it only if the store has that
//! entry still: the hash is that of all entries before, too. So a store that was restored to an
//! earlier time, or replaced, never makes a request of two histories.

use super::conversation::ThreadConversation;
use crate::tenant::Tenant;
use std::collections::VecDeque;
use threadkeep_storage::locks::SleepingMutex;

/// An entry by its version and hash, with which the messages of a conversation end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConversationEnd {
    pub(super) version: u64,
    pub(super) hash: String,
}

/// The conversation of a thread up to an entry.
struct KeptConversation {
    /// The id in lower case.
    thread: String,
    conversation: ThreadConversation,
    bytes: usize,
}

/// The conversations of the threads that were run last, as many as fit. The default keeps none.
#[derive(Default)]
pub(super) struct KeptConversations(SleepingMutex<KeptQueue>);

#[derive(Default)]
struct KeptQueue {
    bytes_max: usize,
    /// The one that was used last is the last.
    conversations: VecDeque<KeptConversation>,
}

impl KeptQueue {
    /// Drops those used longest ago until the others leave so much room.
    fn make_room(&mut self, bytes: usize) {
        let mut total: usize = self.conversations.iter().map(|kept| kept.bytes).sum();
        while total + bytes > self.bytes_max
            && let Some(oldest) = self.conversations.pop_front()
        {
            total -= oldest.bytes;
        }
    }
}

impl KeptConversations {
    /// Sets how many bytes are kept from now on.
    pub(super) fn set_bytes_max(&self, bytes_max: usize) {
        let mut queue = self.0.lock();
        queue.bytes_max = bytes_max;
        queue.make_room(0);
    }

    /// Removes and returns what is kept of a thread, if the store still has the entry that it ends
    /// with.
    pub(super) async fn reclaim_verified(
        &self,
        tenant: &Tenant,
        thread: &str,
    ) -> Option<ThreadConversation> {
        let thread = thread.to_ascii_lowercase();
        let kept = {
            let all = &mut self.0.lock().conversations;
            let place = all.iter().position(|kept| kept.thread == thread)?;
            all.remove(place)?
        };
        let end = kept.conversation.kept_end()?;
        let before = end.version.checked_sub(1)?;
        let page = tenant.entries(&thread, before, 1, None).await.ok()?;
        let is_there = page
            .entries
            .iter()
            .any(|entry| entry.version == end.version && entry.hash == end.hash);
        is_there.then_some(kept.conversation)
    }

    /// Keeps a conversation, if it ends with an entry and fits at all.
    pub(super) fn keep(&self, thread: &str, conversation: ThreadConversation) {
        let thread = thread.to_ascii_lowercase();
        let mut queue = self.0.lock();
        queue.conversations.retain(|kept| kept.thread != thread);
        if queue.bytes_max == 0 {
            return;
        }
        let Some(conversation) = conversation.into_kept() else {
            return;
        };
        let bytes = conversation.kept_bytes();
        if bytes > queue.bytes_max {
            return;
        }
        queue.make_room(bytes);
        queue.conversations.push_back(KeptConversation {
            thread,
            conversation,
            bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(bytes: usize) -> ThreadConversation {
        let end = ConversationEnd {
            version: 3,
            hash: "h".to_owned(),
        };
        ThreadConversation::make_ended("x".repeat(bytes), end)
    }

    /// Bytes of a kept conversation beside its text.
    fn overhead() -> usize {
        let kept = conversation(1).into_kept().expect("it ends with an entry");
        kept.kept_bytes() - 1
    }

    fn names(kept: &KeptConversations) -> Vec<String> {
        let queue = kept.0.lock();
        queue
            .conversations
            .iter()
            .map(|kept| kept.thread.clone())
            .collect()
    }

    #[test]
    fn the_conversations_used_last_are_kept_as_far_as_they_fit() {
        let kept = KeptConversations::default();
        kept.set_bytes_max(2 * overhead() + 10);
        let too_large = overhead() + 11;
        for (thread, bytes) in [("a", 4), ("B", 4), ("c", too_large), ("A", 6), ("d", 4)] {
            kept.keep(thread, conversation(bytes));
        }
        assert_eq!(
            names(&kept),
            ["a", "d"],
            "b made room for d, and c was too large"
        );
        kept.keep("d", conversation(too_large));
        assert_eq!(
            names(&kept),
            ["a"],
            "an older state of d is not kept in its place"
        );
        kept.keep("e", conversation(4));
        kept.keep("f", ThreadConversation::default());
        assert_eq!(names(&kept), ["a", "e"], "f ends with no entry");
        kept.set_bytes_max(overhead() + 4);
        assert_eq!(names(&kept), ["e"]);
        kept.set_bytes_max(0);
        assert_eq!(names(&kept), Vec::<String>::new());
    }

    #[test]
    fn a_driver_that_was_not_told_to_keeps_nothing() {
        let kept = KeptConversations::default();
        kept.keep("a", conversation(1));
        assert_eq!(names(&kept), Vec::<String>::new());
    }

    /// Symptom: the memory of a kept conversation was not bounded. Cause: prompt and tools were
    /// kept beside the messages, and not counted. Fix: only messages and images are kept.
    #[test]
    fn prompt_and_tools_are_not_kept() {
        let mut long = conversation(1);
        long.request.system = "x".repeat(1_000);
        let kept = long.into_kept().expect("it ends with an entry");
        assert_eq!(
            (kept.request.system.as_str(), kept.request.messages.len()),
            ("", 1)
        );
    }
}
