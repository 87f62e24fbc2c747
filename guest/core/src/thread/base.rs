//! The base of a thread that rests on others: the entries of earlier histories that lie before its
//! own. They are referred to and never copied.
//!
//! Versions never begin again along a path. The own entries of a thread count on from the length of
//! its base, so a version names one place among everything that the thread is read along, and so
//! does the id of a call. Only the log of a history counts from 1: see
//! [`super::ThreadRecord::position`].
//!
//! The hashes of the parts stand in the hash that the thread's own history begins with, so an edit
//! of an earlier history can be proved. The audit does that. A load, a resume and a fork read the
//! entries of others as they are stored and hash none of them anew: that would read all of a long
//! path.

use crate::id;
use crate::json::record;

/// Most parts of a new base, so that the record of a thread that was resumed again and again stays
/// small: it is read with every call.
pub const BASE_PARTS_MAX: usize = 64;

/// Most parts of a base that is read: far more than any program writes. A record in a store that
/// somebody else writes may have as many as its bytes hold.
const BASE_PARTS_READ_MAX: usize = 1_024;

/// Part of a thread's record, fixed at its birth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBase {
    /// The version after which the own entries of the thread begin.
    pub length: u64,
    /// The ranges that the thread is read along before the rest of its own entries, in that order.
    pub parts: Vec<BasePart>,
}

record!(HistoryBase { length, parts });

/// A range of the own entries of one thread. Of the ranges that a base carries, those of one thread
/// ascend; those of several need not, because a thread may be read along its own first entry before
/// what it carries. No version is named twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasePart {
    /// Id of the thread whose entries they are. It may be the thread of the base itself: its first
    /// entries are then read before what it carries.
    pub thread: String,
    /// The first version.
    pub from: u64,
    /// The last version.
    pub to: u64,
    /// SHA-256 of the entry of the last version; empty for the thread's own entries, which are not
    /// written when the base is fixed.
    pub hash: String,
}

record!(BasePart {
    thread,
    from,
    to,
    hash
});

impl HistoryBase {
    /// Returns the base of a new thread that is read along these parts first; `None` without any.
    pub fn from_parts(parts: Vec<BasePart>) -> Option<Self> {
        let length = parts.iter().map(|part| part.to).max()?;
        Some(Self { length, parts })
    }

    /// Returns the contradiction in a base of the thread `own`, if there is one.
    pub(super) fn find_contradiction(&self, own: &str) -> Option<&'static str> {
        let own = id::key(own);
        if self.parts.len() > BASE_PARTS_READ_MAX {
            return Some("has more parts than any program writes");
        }
        // Both are kept in order.
        let mut last_by_thread = vec![(own.clone(), self.length)];
        let mut carried: Vec<(u64, u64)> = Vec::new();
        for part in &self.parts {
            if id::check_id("base", &part.thread).is_err() {
                return Some("names a thread that is no id");
            }
            let thread = id::key(&part.thread);
            if thread != own {
                let place = carried.partition_point(|(from, _)| *from < part.from);
                carried.insert(place, (part.from, part.to));
            }
            let place = last_by_thread.partition_point(|(key, _)| *key < thread);
            if last_by_thread
                .get(place)
                .is_none_or(|(key, _)| *key != thread)
            {
                last_by_thread.insert(place, (thread, 0));
            }
            let (_, last) = &mut last_by_thread[place];
            if part.from <= *last || part.to < part.from {
                return Some("has parts that are not in order");
            }
            *last = part.to;
        }
        let mut reached = 0;
        for (from, to) in carried {
            if from <= reached {
                return Some("has a version twice");
            }
            reached = to;
        }
        (reached != self.length || self.length == 0).then_some("does not reach to its length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(length: u64, parts: &[(&str, u64, u64)]) -> HistoryBase {
        let part = |(thread, from, to): &(&str, u64, u64)| BasePart {
            thread: (*thread).to_owned(),
            from: *from,
            to: *to,
            hash: String::new(),
        };
        HistoryBase {
            length,
            parts: parts.iter().map(part).collect(),
        }
    }

    #[test]
    fn parts_are_in_order_and_reach_to_the_length() {
        for (base, expected) in [
            (base(7, &[("a", 1, 7)]), true),
            (base(7, &[("a", 1, 3), ("b", 6, 7)]), true),
            (base(7, &[("OWN", 8, 8), ("a", 5, 7)]), true),
            (base(7, &[("own", 8, 8), ("a", 5, 7), ("own", 9, 9)]), true),
            (base(0, &[]), false),
            (base(7, &[]), false),
            (base(7, &[("a", 1, 6)]), false),
            (base(7, &[("a", 1, 8)]), false),
            (base(7, &[("a", 0, 7)]), false),
            (base(7, &[("a", 7, 6), ("a", 7, 7)]), false),
            (base(7, &[("a", 1, 4), ("b", 4, 7)]), false),
            // A link that was handed off is read along its first entry before what it carries.
            (base(9, &[("b", 8, 8), ("a", 5, 7), ("b", 9, 9)]), true),
            (base(9, &[("b", 9, 9), ("a", 5, 7), ("b", 8, 8)]), false),
            (base(9, &[("b", 7, 9), ("a", 5, 7)]), false),
            (base(7, &[("own", 7, 8), ("a", 5, 7)]), false),
            (base(7, &[("../a", 1, 7)]), false),
            (base(7, &[("a", 1, 7), ("b", 1, 7)]), false),
        ] {
            let found = base.find_contradiction("own");
            assert_eq!(found.is_none(), expected, "{base:?}: {found:?}");
        }
    }
    #[test]
    fn a_base_has_a_most_of_parts() {
        for (most, expected) in [
            (BASE_PARTS_READ_MAX, true),
            (BASE_PARTS_READ_MAX + 1, false),
        ] {
            let parts: Vec<(&str, u64, u64)> = (1..=most as u64).map(|n| ("a", n, n)).collect();
            let found = base(most as u64, &parts).find_contradiction("own");
            assert_eq!(found.is_none(), expected, "{most} parts: {found:?}");
        }
    }
}
