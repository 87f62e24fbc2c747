//! The record of a thread: its definition. Replaced at creation, at the first start, and when the
//! thread ends or gets a title.

use super::{ForkOrigin, HistoryBase, ThreadStatus};
use crate::id;
use crate::json::record;
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
    /// The entries of earlier histories that it rests on; `None` where its history begins with its
    /// own.
    pub base: Option<HistoryBase>,
    /// Where it was forked; `None` where it was not.
    pub fork: Option<ForkOrigin>,
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
    base or nothing,
    fork or nothing,
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

impl ThreadRecord {
    /// Id of the first link of its chain, if that is another thread.
    pub fn first_link(&self) -> Option<String> {
        let is_other = id::key(&self.chain) != id::key(&self.id);
        is_other.then(|| self.chain.clone())
    }

    /// The version after which the own entries of the thread begin: 0 without a base.
    pub fn base_length(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.length)
    }

    /// Returns the position of one of the thread's own versions in its log `history`; `None` for a
    /// version that lies in its base. Nothing else turns versions into positions.
    pub fn position(&self, version: u64) -> Option<u64> {
        let position = version.checked_sub(self.base_length())?;
        (position > 0).then_some(position)
    }

    /// Returns the version at a position of the thread's log `history`: the reverse of
    /// [`ThreadRecord::position`].
    pub fn version_at(&self, position: u64) -> u64 {
        position.saturating_add(self.base_length())
    }

    /// Returns the contradiction in the record's base, if there is one. Such a record cannot be
    /// read.
    pub fn find_base_contradiction(&self) -> Option<&'static str> {
        self.base.as_ref()?.find_contradiction(&self.id)
    }
}

/// Choices of the creator: applied again when the directive is resolved at the first start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreatorOverrides {
    /// A model or tier.
    pub model: Option<String>,
    /// Caps chosen by the creator.
    pub limits: ThreadCaps,
    /// A chat's capabilities.
    pub capabilities: Vec<String>,
    /// Patterns of calls that need consent, beside those of the directive.
    pub approvals: Vec<String>,
    /// Bounds inherited from the thread that spawned it, if one did.
    pub within: Option<InheritedBounds>,
}

record!(CreatorOverrides {
    model,
    limits,
    capabilities,
    approvals or nothing,
    within or nothing
});

/// Bounds that a child inherits from the thread that spawns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InheritedBounds {
    /// Upper bounds of its caps; the depth is one level less than the parent's.
    pub limits: ThreadCaps,
    /// Tools that it may call at most.
    pub capabilities: Vec<String>,
    /// Patterns of calls that need consent.
    pub approvals: Vec<String>,
}

record!(InheritedBounds {
    limits,
    capabilities,
    approvals or nothing
});

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::thread::FORMAT;

    /// A chat that nothing is known of but its id.
    pub fn bare_record(id: &str) -> ThreadRecord {
        ThreadRecord {
            format: FORMAT,
            id: id.to_owned(),
            directive: None,
            parent: None,
            chain: id.to_owned(),
            previous: None,
            next: None,
            base: None,
            fork: None,
            agent: None,
            task: None,
            title: None,
            model: "m".to_owned(),
            limits: ThreadCaps::NONE,
            capabilities: Vec::new(),
            overrides: CreatorOverrides::default(),
            inputs: "{}".to_owned(),
            pin: None,
            outcome: None,
            result: None,
            created: UnixTime {
                seconds: 0,
                nanos: 0,
            },
        }
    }

    #[test]
    fn own_versions_count_on_from_the_base() {
        let mut record = bare_record("own");
        let positions = |record: &ThreadRecord| [0, 1, 7, 8, 10].map(|at| record.position(at));
        assert_eq!(
            positions(&record),
            [None, Some(1), Some(7), Some(8), Some(10)]
        );
        record.base = Some(HistoryBase {
            length: 7,
            parts: Vec::new(),
        });
        assert_eq!(positions(&record), [None, None, None, Some(1), Some(3)]);
        assert_eq!([1, 3].map(|at| record.version_at(at)), [8, 10]);
    }
}
