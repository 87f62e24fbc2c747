//! Conversations that a driver keeps from one run of a thread to the next, so that a message to a
//! long thread does not read all of it again.
//!
//! What is kept ends with an entry whose hash is known. A run takes it only if the store has that
//! entry still: the hash is that of all entries before, too. So a store that was restored to an
//! earlier time, or replaced, never makes a request of two histories.

use super::conversation::ThreadConversation;
use crate::tenant::Tenant;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An entry by its version and hash, with which the messages of a conversation end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConversationEnd {
    pub(super) version: u64,
    pub(super) hash: String,
}

/// A conversation up to an entry.
struct KeptConversation {
    /// The id in lower case.
    thread: String,
    end: ConversationEnd,
    conversation: ThreadConversation,
    bytes: usize,
}

/// The conversations of the threads that were run last, as many as fit. The default keeps none.
#[derive(Default)]
pub(super) struct KeptConversations {
    bytes_max: AtomicUsize,
    /// The one that was used last is the last.
    kept: Mutex<VecDeque<KeptConversation>>,
}

impl KeptConversations {
    /// Sets how many bytes of messages and images are kept from now on.
    pub(super) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Takes what is kept of a thread, if the store has the entry that it ends with.
    pub(super) async fn take(&self, tenant: &Tenant, thread: &str) -> Option<ThreadConversation> {
        let thread = thread.to_ascii_lowercase();
        let kept = {
            let mut all = self.kept.lock();
            let place = all.iter().position(|kept| kept.thread == thread)?;
            all.remove(place)?
        };
        let before = kept.end.version.checked_sub(1)?;
        let page = tenant.entries(&thread, before, 1, None).await.ok()?;
        let is_there = page
            .entries
            .iter()
            .any(|entry| entry.version == kept.end.version && entry.hash == kept.end.hash);
        is_there.then_some(kept.conversation)
    }

    /// Keeps a conversation, in the place of those that were used before others.
    pub(super) fn keep(&self, thread: &str, conversation: ThreadConversation) {
        let Some((end, conversation)) = conversation.into_ended() else {
            return;
        };
        let bytes = conversation.bytes();
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        if bytes > bytes_max {
            return;
        }
        let thread = thread.to_ascii_lowercase();
        let mut all = self.kept.lock();
        all.retain(|kept| kept.thread != thread);
        let mut total: usize = all.iter().map(|kept| kept.bytes).sum();
        while total + bytes > bytes_max
            && let Some(oldest) = all.pop_front()
        {
            total -= oldest.bytes;
        }
        all.push_back(KeptConversation {
            thread,
            end,
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

    fn names(kept: &KeptConversations) -> Vec<String> {
        kept.kept
            .lock()
            .iter()
            .map(|kept| kept.thread.clone())
            .collect()
    }

    #[test]
    fn the_conversations_used_last_are_kept_as_far_as_they_fit() {
        let kept = KeptConversations::default();
        kept.set_bytes_max(10);
        for (thread, bytes) in [("a", 4), ("B", 4), ("c", 11), ("A", 5), ("d", 6)] {
            kept.keep(thread, conversation(bytes));
        }
        assert_eq!(
            names(&kept),
            ["d"],
            "b and a made room for it, and c was too large"
        );
        kept.keep("e", conversation(4));
        assert_eq!(names(&kept), ["d", "e"]);
        kept.keep("f", ThreadConversation::default());
        assert_eq!(
            names(&kept),
            ["d", "e"],
            "a conversation that ends nowhere is not kept"
        );
    }

    #[test]
    fn a_driver_that_was_not_told_to_keeps_nothing() {
        let kept = KeptConversations::default();
        kept.keep("a", conversation(1));
        assert_eq!(names(&kept), Vec::<String>::new());
    }
}
