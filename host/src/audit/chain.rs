//! The audit of one chain: its links, its tip, and the chains above it.

use super::fork::check_fork_count;
use super::record_reader::{
    RecordSnapshot, all_names, index_key, key_of, list, number, text, unescape,
};
use super::{StoreAudit, StoreInvariant, TRIES_MAX, UnconfirmedFindings, printable_text};
use crate::storage::{KEY_BYTES_MAX, PAGE_ENTRIES_MAX, RecordKey, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

impl StoreAudit<'_> {
    /// Audits one chain; repeats that while others change it.
    pub(super) fn audit_chain(&mut self, root: &str) -> Result<(), StorageError> {
        match self.compare_chain(root) {
            // A record that cannot be read is reported already, and without it there is nothing to
            // compare.
            Err(StorageError::Corrupt { .. }) => Ok(()),
            done => done,
        }
    }

    fn compare_chain(&mut self, root: &str) -> Result<(), StorageError> {
        for _ in 0..TRIES_MAX {
            let links = self.find_indexed("chain", root)?;
            let children = self.find_children(&links)?;
            let numbered = self.find_index_names("child", root)?;
            let forks = self.find_index_names("fork", root)?;
            let Some(records) = self.read_chain(root, &links, &children)? else {
                continue;
            };
            let mut suspicion = UnconfirmedFindings::for_thread(root);
            check_links(root, &links, &records, &mut suspicion);
            check_carried_spend(root, &links, &records, &mut suspicion);
            check_parent(root, &records, &mut suspicion);
            check_numbers(root, &children, &records, &mut suspicion);
            check_child_entries(root, &children, (&numbered, &records), &mut suspicion);
            check_fork_count(root, &forks, &records, &mut suspicion);
            let above = !records.json("chain", root)["parent"].is_null();
            if above && self.is_cyclic(root)? {
                let expected = "parents that end with a root";
                suspicion.add(
                    StoreInvariant::Chains,
                    expected,
                    "chains that lead back to themselves",
                );
            }
            if suspicion.is_empty() {
                return Ok(());
            }
            let same = self.find_indexed("chain", root)? == links
                && self.find_children(&links)? == children
                && self.find_index_names("child", root)? == numbered
                && self.find_index_names("fork", root)? == forks;
            if same && records.is_unchanged(self.storage)? {
                suspicion.report_to(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// Returns the threads whose parent is one of these links, in the order of the index.
    pub(super) fn find_children(&self, links: &[String]) -> Result<Vec<String>, StorageError> {
        let mut children = Vec::new();
        for link in links {
            children.extend(self.find_indexed("parent", link)?);
        }
        Ok(children)
    }

    /// Reads a chain, its links with their heads if there are several, the thread and chain that
    /// spawned it, and the chains of its children, at one moment.
    fn read_chain(
        &self,
        root: &str,
        links: &[String],
        children: &[String],
    ) -> Result<Option<RecordSnapshot>, StorageError> {
        let own = [
            RecordKey::new("chain", root),
            RecordKey::new("thread", root),
        ];
        let first = RecordSnapshot::read_in_parts(self.storage, &own)?;
        let above = key_of(&first.json("chain", root)["parent"]);
        let parent = key_of(&first.json("thread", root)["parent"]);
        let threads = links.iter().flat_map(|link| {
            let heads = (links.len() > 1).then(|| RecordKey::new("head", link));
            heads.into_iter().chain([RecordKey::new("thread", link)])
        });
        let children = children.iter().map(|child| RecordKey::new("chain", child));
        let mut keys: Vec<RecordKey> = own.into_iter().chain(threads).chain(children).collect();
        for (collection, name) in [("chain", above), ("thread", parent)] {
            if !name.is_empty() {
                keys.push(RecordKey::new(collection, name));
            }
        }
        keys.sort();
        keys.dedup();
        RecordSnapshot::read_at_one_moment(self.storage, &keys)
    }

    /// Returns the keys of the threads that the index has under a value.
    pub(super) fn find_indexed(
        &self,
        name: &str,
        value: &str,
    ) -> Result<Vec<String>, StorageError> {
        let names = self.find_index_names(name, value)?.into_iter();
        let threads = names.filter_map(|name| name.rsplit('\u{1}').next().map(unescape));
        Ok(threads.collect())
    }

    /// Returns the names of the entries that the index has under a value.
    fn find_index_names(&self, name: &str, value: &str) -> Result<Vec<String>, StorageError> {
        let prefix = format!("{name}\u{1}{}", super::record_reader::escape(value));
        let (mut from, end) = (format!("{prefix}\u{1}"), format!("{prefix}\u{2}"));
        if from.len() > KEY_BYTES_MAX {
            // No entry can have it.
            return Ok(Vec::new());
        }
        let mut keys = Vec::new();
        loop {
            let page = self
                .storage
                .scan("index", &from, &end, PAGE_ENTRIES_MAX, false)?;
            let cursor = page.cursor.clone();
            keys.extend(all_names(page));
            match cursor {
                Some(cursor) => from = cursor,
                None => return Ok(keys),
            }
        }
    }

    /// Returns true if a chain lies above itself. The mark that is compared moves on ever more
    /// rarely (Brent's algorithm), so that a cycle is found wherever it begins and however long it
    /// is.
    fn is_cyclic(&self, root: &str) -> Result<bool, StorageError> {
        let (mut mark, mut at) = (root.to_owned(), root.to_owned());
        let (mut steps, mut until) = (0_u64, 1_u64);
        loop {
            let above =
                RecordSnapshot::read_in_parts(self.storage, &[RecordKey::new("chain", &at)]);
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

/// Checks the links of a chain, one after the other, up to its tip.
fn check_links(
    root: &str,
    links: &[String],
    records: &RecordSnapshot,
    suspicion: &mut UnconfirmedFindings,
) {
    let chain = records.json("chain", root);
    if !chain.is_object() {
        let expected = "a record of the chain";
        return suspicion.add(
            StoreInvariant::Histories,
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
            let found = format!("{} after {}", printable_text(&at), printable_text(&before));
            return suspicion.add(StoreInvariant::Chains, expected, found);
        }
        let thread = records.json("thread", &at);
        if !thread.is_object() {
            // The record is reported already, and without it the next link is unknown.
            return;
        }
        let previous = key_of(&thread["previous"]);
        if previous != before {
            let expected = format!(
                "{:?} before {}",
                printable_text(&before),
                printable_text(&at)
            );
            let found = format!("{:?}", printable_text(&previous));
            suspicion.add(StoreInvariant::Chains, expected, found);
        }
        if key_of(&thread["chain"]) != root {
            let found = format!(
                "{} in the chain {}",
                printable_text(&at),
                printable_text(text(&thread["chain"]))
            );
            suspicion.add(StoreInvariant::Chains, "threads of this chain", found);
        }
        let next = key_of(&thread["next"]);
        if next.is_empty() {
            break;
        }
        before = std::mem::replace(&mut at, next);
    }
    if at != tip {
        let expected = format!("the tip {}, the last link", printable_text(&at));
        suspicion.add(StoreInvariant::Chains, expected, printable_text(&tip));
    }
    if let Some(loose) = left.first() {
        let found = format!("{} besides", printable_text(loose));
        suspicion.add(
            StoreInvariant::Chains,
            "threads that link to one another",
            found,
        );
    }
}

/// Checks that the tip carries what the links before it have spent, and that no other link carries
/// anything.
fn check_carried_spend(
    root: &str,
    links: &[String],
    records: &RecordSnapshot,
    suspicion: &mut UnconfirmedFindings,
) {
    // What is missing is reported already.
    let known = links.iter().all(|link| records.has("head", link));
    if links.len() < 2 || !known {
        return;
    }
    let spent = |link: &String| number(&records.json("head", link)["counters"]["spend"]);
    let all = links.iter().map(spent).fold(0, u64::saturating_add);
    let tip = key_of(&records.json("chain", root)["tip"]);
    for link in links {
        let expected = match *link == tip {
            true => all.saturating_sub(spent(link)),
            false => 0,
        };
        let carried = number(&records.json("head", link)["carried_spend"]);
        let what = format!("spend carried to {}", printable_text(link));
        suspicion.expect_equal(StoreInvariant::Counters, &what, expected, carried);
    }
}

/// Checks the chain's parent, and the accounts above its own.
fn check_parent(root: &str, records: &RecordSnapshot, suspicion: &mut UnconfirmedFindings) {
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
            printable_text(&of),
            printable_text(&parent)
        );
        suspicion.add(
            StoreInvariant::Chains,
            expected,
            format!("{:?}", printable_text(&above)),
        );
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
        suspicion.add(StoreInvariant::Chains, expected, found);
    }
    let account = key_of(&chain["account"]["parent"]);
    if !account.is_empty() && found.first() != Some(&account) {
        let expected = "an account under the nearest above it";
        let found = format!("one under {}", printable_text(&account));
        suspicion.add(StoreInvariant::Chains, expected, found);
    }
}

/// Checks the numbers of the chains that a parent has spawned: each is unique and at most the
/// count. A root has no number.
fn check_numbers(
    root: &str,
    children: &[String],
    records: &RecordSnapshot,
    suspicion: &mut UnconfirmedFindings,
) {
    let chain = records.json("chain", root);
    let (count, below) = (number(&chain["children"]), number(&chain["depth"]) + 1);
    let spawned = chain["spawned"].as_u64().unwrap_or(count);
    if spawned < count {
        let expected = format!("a last spawn number of at least {count}, the number of children");
        suspicion.add(StoreInvariant::Chains, expected, format!("{spawned}"));
    }
    let rootless = chain["parent"].is_null() && number(&chain["number"]) > 0;
    suspicion.add_if(
        StoreInvariant::Chains,
        rootless,
        "no number: it is a root",
        "one",
    );
    let mut taken = BTreeSet::new();
    for child in children {
        let record = records.json("chain", child);
        // A thread that is not the first link of its chain has no chain record, and records of
        // older versions have no number.
        if key_of(&record["parent"]) != root || record["number"].is_null() {
            continue;
        }
        let (n, depth) = (number(&record["number"]), number(&record["depth"]));
        if n == 0 || n > spawned || !taken.insert(n) {
            let expected = format!("children with numbers of their own up to {spawned}");
            let found = format!("{} with the number {n}", printable_text(child));
            suspicion.add(StoreInvariant::Chains, expected, found);
        }
        if !record["depth"].is_null() && depth != below {
            let expected = format!("{} chains above {}", below, printable_text(child));
            suspicion.add(StoreInvariant::Chains, expected, format!("{depth}"));
        }
    }
}

/// Checks that each child has its entry in the index of children by number. Chains of earlier
/// builds have no last spawn number and no such entries. The audit of the index checks the other
/// way.
fn check_child_entries(
    root: &str,
    children: &[String],
    (numbered, records): (&[String], &RecordSnapshot),
    suspicion: &mut UnconfirmedFindings,
) {
    let numbered: BTreeSet<&String> = numbered.iter().collect();
    for child in children {
        let record = records.json("chain", child);
        if key_of(&record["parent"]) != root || record["spawned"].is_null() {
            continue;
        }
        let name = index_key("child", root, number(&record["number"]), child);
        if !numbered.contains(&name) {
            let expected = format!("the index entry {}", printable_text(&name));
            suspicion.add(StoreInvariant::Indexes, expected, "none");
        }
    }
}
