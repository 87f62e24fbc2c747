//! One chain: its links, its tip, and the chains that lie above it.

use super::read::{Snapshot, key_of, list, text, unescape};
use super::{Audit, Invariant, Suspicion, TRIES_MAX, shown};
use crate::storage::{Key, PAGE_ENTRIES_MAX, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

impl Audit<'_> {
    /// Look at one chain, and again while others change it.
    pub(super) fn chain(&mut self, root: &str) -> Result<(), StorageError> {
        match self.compare_chain(root) {
            // What cannot be read is named already, and without it there is nothing to compare.
            Err(StorageError::Corrupt { .. }) => Ok(()),
            done => done,
        }
    }

    fn compare_chain(&mut self, root: &str) -> Result<(), StorageError> {
        for _ in 0..TRIES_MAX {
            let links = self.indexed("chain", root)?;
            let Some(records) = self.of_chain(root, &links)? else {
                continue;
            };
            let mut suspicion = Suspicion::about(root);
            linked(root, &links, &records, &mut suspicion);
            spawned(root, &records, &mut suspicion);
            let above = !records.json("chain", root)["parent"].is_null();
            if above && self.is_circle(root)? {
                let expected = "parents that end with a root";
                suspicion.of(
                    Invariant::Chains,
                    expected,
                    "chains that lead back to themselves",
                );
            }
            if suspicion.is_empty() {
                return Ok(());
            }
            if records.stands(self.storage)? && self.indexed("chain", root)? == links {
                suspicion.report(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// A chain, its links, and the thread and chain that spawned it, at one moment.
    fn of_chain(&self, root: &str, links: &[String]) -> Result<Option<Snapshot>, StorageError> {
        let own = [Key::new("chain", root), Key::new("thread", root)];
        let first = Snapshot::in_parts(self.storage, &own)?;
        let above = key_of(&first.json("chain", root)["parent"]);
        let parent = key_of(&first.json("thread", root)["parent"]);
        let threads = links.iter().map(|link| Key::new("thread", link));
        let mut keys: Vec<Key> = own.into_iter().chain(threads).collect();
        for (collection, name) in [("chain", above), ("thread", parent)] {
            if !name.is_empty() {
                keys.push(Key::new(collection, name));
            }
        }
        keys.sort();
        keys.dedup();
        Snapshot::take(self.storage, &keys)
    }

    /// Keys of the threads that the index has under a value.
    pub(super) fn indexed(&self, name: &str, value: &str) -> Result<Vec<String>, StorageError> {
        let prefix = format!("{name}\u{1}{}", super::read::escape(value));
        let (mut from, end) = (format!("{prefix}\u{1}"), format!("{prefix}\u{2}"));
        let mut keys = Vec::new();
        loop {
            let page = self
                .storage
                .scan("index", &from, &end, PAGE_ENTRIES_MAX, false)?;
            let names = page.items.iter();
            keys.extend(names.filter_map(|item| {
                let thread = item.key.name.rsplit('\u{1}').next()?;
                Some(unescape(thread))
            }));
            match page.cursor {
                Some(cursor) => from = cursor,
                None => return Ok(keys),
            }
        }
    }

    /// Does a chain lie above itself? The mark that is compared moves on ever more rarely (Brent), so that a circle is found
    /// wherever it begins and however long it is.
    fn is_circle(&self, root: &str) -> Result<bool, StorageError> {
        let (mut mark, mut at) = (root.to_owned(), root.to_owned());
        let (mut steps, mut until) = (0_u64, 1_u64);
        loop {
            let above = Snapshot::in_parts(self.storage, &[Key::new("chain", &at)]);
            let above = key_of(&above?.json("chain", &at)["parent"]);
            if above.is_empty() || above == mark {
                return Ok(!above.is_empty());
            }
            at = above;
            steps += 1;
            if steps == until {
                mark.clone_from(&at);
                until *= 2;
                steps = 0;
            }
        }
    }
}

/// The links of a chain, one after the other, up to its tip.
fn linked(root: &str, links: &[String], records: &Snapshot, suspicion: &mut Suspicion) {
    let chain = records.json("chain", root);
    if !chain.is_object() {
        let expected = "a record of the chain";
        return suspicion.of(
            Invariant::Histories,
            expected,
            "a text that is no JSON object",
        );
    }
    let tip = key_of(&chain["tip"]);
    let mut left: BTreeSet<&str> = links.iter().map(String::as_str).collect();
    let (mut at, mut before) = (root.to_owned(), String::new());
    loop {
        if !left.remove(at.as_str()) {
            let expected = "links that the index knows, each once, up to the tip";
            let found = format!("{} after {}", shown(&at), shown(&before));
            return suspicion.of(Invariant::Chains, expected, found);
        }
        let thread = records.json("thread", &at);
        if !thread.is_object() {
            // It is named already, and nobody knows where the chain goes on.
            return;
        }
        let previous = key_of(&thread["previous"]);
        if previous != before {
            let expected = format!("{:?} before {}", shown(&before), shown(&at));
            let found = format!("{:?}", shown(&previous));
            suspicion.of(Invariant::Chains, expected, found);
        }
        if key_of(&thread["chain"]) != root {
            let found = format!(
                "{} in the chain {}",
                shown(&at),
                shown(text(&thread["chain"]))
            );
            suspicion.of(Invariant::Chains, "threads of this chain", found);
        }
        let next = key_of(&thread["next"]);
        if next.is_empty() {
            break;
        }
        before = std::mem::replace(&mut at, next);
    }
    if at != tip {
        let expected = format!("the tip {}, the last link", shown(&at));
        suspicion.of(Invariant::Chains, expected, shown(&tip));
    }
    if let Some(loose) = left.first() {
        let found = format!("{} besides", shown(loose));
        suspicion.of(Invariant::Chains, "threads that link to one another", found);
    }
}

/// Who spawned it, and the accounts above its own.
fn spawned(root: &str, records: &Snapshot, suspicion: &mut Suspicion) {
    let chain = records.json("chain", root);
    let above = key_of(&chain["parent"]);
    let parent = key_of(&records.json("thread", root)["parent"]);
    let of = if parent.is_empty() {
        String::new()
    } else {
        key_of(&records.json("thread", &parent)["chain"])
    };
    if above != of {
        let expected = format!(
            "the chain {:?} of its parent {:?} above it",
            shown(&of),
            shown(&parent)
        );
        suspicion.of(Invariant::Chains, expected, format!("{:?}", shown(&above)));
        return;
    }
    let parent = records.json("chain", &above);
    let own =
        |chain: &Value| list(&chain["above"]).is_empty() || !chain["account"]["parent"].is_null();
    let mut expected: Vec<String> = Vec::new();
    if !above.is_empty() {
        expected.extend(own(&parent).then(|| above.clone()));
        expected.extend(list(&parent["above"]).iter().map(key_of));
    }
    let found: Vec<String> = list(&chain["above"]).iter().map(key_of).collect();
    if found != expected {
        let expected = format!(
            "accounts of {} chains above it, as above its parent",
            expected.len()
        );
        let found = format!("{} others", found.len());
        suspicion.of(Invariant::Chains, expected, found);
    }
    let account = key_of(&chain["account"]["parent"]);
    if !account.is_empty() && found.first() != Some(&account) {
        let expected = "an account under the nearest above it";
        let found = format!("one under {}", shown(&account));
        suspicion.of(Invariant::Chains, expected, found);
    }
}
