//! The entries by which a driver finds what it has to do in a tree without reading the whole of it:
//! due entries, and the index of interrupted threads.
//!
//! Both name the root of the tree. Neither moves while a run goes on, so a turn writes none.

use super::related_thread::has_passing_cause;
use super::{StoreWrite, ThreadChange, WriteCondition, index_delete, index_write};
use crate::json::{self, ObjectReader, ObjectWriter};
use crate::thread::{ChainRecord, Head};
use crate::{id, key};

impl ThreadChange<'_> {
    /// Replaces the due entry of the thread where its time has changed. A thread that is created,
    /// waiting or held, or that has mail to take, has one; it is never later than its true time. It
    /// stays where it is while a run goes on, so that a turn does not move it.
    pub(super) fn write_due(&mut self, writes: &mut Vec<StoreWrite>) {
        let before = self.loaded_thread().head.value.due;
        self.replace_due_entry(writes, &self.loaded_thread().key(), before, self.head.due);
    }

    /// Replaces the due entry of a thread of the same tree.
    pub(super) fn replace_due_entry(
        &self,
        writes: &mut Vec<StoreWrite>,
        thread: &str,
        before: Option<u64>,
        after: Option<u64>,
    ) {
        if before == after {
            return;
        }
        writes.extend(before.map(|time| StoreWrite::Delete {
            collection: key::DUE,
            key: due_key(time, thread),
        }));
        let root = self.chain.tree_root(&self.thread.chain);
        writes.extend(after.map(|time| due_write(time, thread, root)));
    }

    /// Replaces the thread's entry in the index of interrupted threads, where it has one or gets
    /// one.
    pub(super) fn write_interrupted(&self, writes: &mut Vec<StoreWrite>) {
        let loaded = self.loaded_thread();
        let time =
            |head: &Head| is_indexed_as_interrupted(head, &self.chain).then_some(head.recency);
        let (before, after) = (time(&loaded.head.value), time(&self.head));
        if before == after {
            return;
        }
        let (key, root) = (
            loaded.key(),
            id::key(self.chain.tree_root(&self.thread.chain)),
        );
        writes.extend(before.map(|time| index_delete(key::INTERRUPTED, &root, time, &key)));
        writes.extend(after.map(|time| index_write(key::INTERRUPTED, &root, time, &key)));
    }
}

/// Returns true if a thread has an entry in the index of interrupted threads, at the time of its
/// recency: it lies below another, and is suspended for a cause that the driver of its tree may
/// mend. The caps, which others may change, are not asked here.
pub fn is_indexed_as_interrupted(head: &Head, chain: &ChainRecord) -> bool {
    chain.parent.is_some() && has_passing_cause(head, !chain.has_account())
}

fn due_key(millis: u64, thread: &str) -> String {
    key::join(&[&key::encode_number(millis), thread])
}

/// Returns the write of a due entry at a time in milliseconds. `root` is the id of the root of the
/// thread's tree.
pub fn due_write(millis: u64, thread: &str, root: &str) -> StoreWrite {
    let mut value = String::new();
    ObjectWriter::new(&mut value)
        .add("tree", &id::key(root))
        .finish();
    StoreWrite::Put {
        collection: key::DUE,
        key: due_key(millis, thread),
        expect: WriteCondition::Any,
        value,
    }
}

/// Returns true if a due entry may be of a thread of this tree, by the key of its root. An entry of
/// an earlier build names the thread's chain and not its tree, and one that cannot be read names
/// nothing: those may be of any.
pub fn is_tree_entry(value: &str, root: &str) -> bool {
    let tree = json::parse(value).and_then(|value| ObjectReader::new(value)?.field("tree"));
    tree.map_or(true, |tree: Option<String>| {
        tree.is_none_or(|tree| tree == root)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_other_trees_are_known_by_their_text() {
        let StoreWrite::Put { value, .. } = due_write(7, "t", "Top") else {
            panic!("a due entry is put");
        };
        for (value, root, may_be) in [
            (&*value, "top", true),
            (&value, "other", false),
            (r#"{"root":"child"}"#, "top", true),
            ("", "top", true),
            (r#"{"tree":7}"#, "top", true),
        ] {
            assert_eq!(is_tree_entry(value, root), may_be, "{value} {root}");
        }
    }
}
