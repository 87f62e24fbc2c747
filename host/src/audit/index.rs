//! The audit of entries by which other records are found: each must belong to a thread that
//! confirms it.

use super::read::{
    Names, Snapshot, digest, escape, index_key, key_of, millis, number, text, unescape,
};
use super::{Audit, Invariant, Suspicion, TRIES_MAX, shown};
use crate::storage::{Key, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

/// Entries that are checked together: each depends on three records.
const AT_ONCE: usize = 100;
/// Collections of entries that belong to a thread or chain.
const COLLECTIONS: [&str; 6] = ["index", "due", "inbox", "partial", "seen", "pin"];
/// Collections of which it is only asked whether their records can be read.
const OTHERS: [&str; 3] = ["signature", "sweep", "blob"];

impl Audit<'_> {
    /// Audits every entry of these collections.
    pub(super) fn entries_of_indexes(&mut self) -> Result<(), StorageError> {
        for collection in COLLECTIONS {
            let mut names = Names::new(self.storage, collection);
            let mut some = Vec::with_capacity(AT_ONCE);
            loop {
                let name = names.next(&mut self.report)?;
                let last = name.is_none();
                some.extend(name);
                if some.len() == AT_ONCE || last {
                    self.entries(collection, &std::mem::take(&mut some))?;
                }
                if last {
                    break;
                }
            }
        }
        for collection in OTHERS {
            let mut names = Names::new(self.storage, collection);
            while names.next(&mut self.report)?.is_some() {}
        }
        Ok(())
    }

    /// All of them at one moment if that can be had, as it nearly always can, and those that are wrong once more
    /// together; else one by one. So a store with many wrong ones takes no longer than one with many right ones.
    fn entries(&mut self, collection: &str, names: &[String]) -> Result<(), StorageError> {
        let all = match self.entries_at_once(collection, names) {
            Ok(all) => all,
            Err(StorageError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(records) = all else {
            return names
                .iter()
                .try_for_each(|name| self.entry(collection, name));
        };
        let found = names.iter().filter_map(|name| {
            let (thread, expected) = wrong(collection, name, &records)?;
            Some((name, thread, expected))
        });
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Ok(());
        }
        let stands = records.stands(self.storage)?;
        for (name, thread, expected) in found {
            match stands {
                true => self.note_entry(collection, name, &thread, expected),
                false => self.entry(collection, name)?,
            }
        }
        Ok(())
    }

    /// What these entries rest on, at one moment.
    fn entries_at_once(
        &self,
        collection: &str,
        names: &[String],
    ) -> Result<Option<Snapshot>, StorageError> {
        let chains = match collection {
            "inbox" => self.chains_of(names)?,
            _ => Snapshot::default(),
        };
        let rests = names
            .iter()
            .flat_map(|name| rests_on(collection, name, &chains));
        let mut keys: Vec<Key> = rests.collect();
        keys.sort();
        keys.dedup();
        match names.len() {
            1 => Snapshot::take(self.storage, &keys),
            // Those of many that do not fit one answer could take any memory.
            _ => Snapshot::at_once(self.storage, &keys),
        }
    }

    /// The chains that entries of an inbox are for, at no common moment: the tip of each leads to a head.
    fn chains_of(&self, names: &[String]) -> Result<Snapshot, StorageError> {
        let firsts = names.iter().map(|name| ends(name).0);
        let keys: BTreeSet<Key> = firsts
            .filter(|first| !first.is_empty())
            .map(|first| Key::new("chain", first))
            .collect();
        Snapshot::in_parts(self.storage, &Vec::from_iter(keys))
    }

    fn note_entry(&mut self, collection: &str, name: &str, thread: &str, expected: String) {
        let invariant = match collection {
            "pin" => Invariant::Histories,
            _ => Invariant::Indexes,
        };
        let mut suspicion = Suspicion::about(thread);
        let found = format!("{collection} {}", shown(name));
        suspicion.of(invariant, expected, found);
        suspicion.report(&mut self.report);
    }

    /// Audits one entry; repeats that while others change the records that it depends on.
    fn entry(&mut self, collection: &str, name: &str) -> Result<(), StorageError> {
        for _ in 0..TRIES_MAX {
            let records = match self.entries_at_once(collection, &[name.to_owned()]) {
                Ok(Some(records)) => records,
                Ok(None) => continue,
                // The record is reported already.
                Err(StorageError::Corrupt { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some((thread, expected)) = wrong(collection, name, &records) else {
                return Ok(());
            };
            if records.stands(self.storage)? {
                self.note_entry(collection, name, &thread, expected);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }
}

/// The entry and the records that say whether it belongs there. `chains`: those that it may be for.
fn rests_on(collection: &str, name: &str, chains: &Snapshot) -> Vec<Key> {
    let (first, last) = ends(name);
    let of = |collections: &[&str], key: &str| -> Vec<Key> {
        // An empty part names no record.
        let named = collections.iter().filter(|_| !key.is_empty());
        named.map(|collection| Key::new(*collection, key)).collect()
    };
    let mut keys = vec![Key::new(collection, name)];
    match collection {
        "index" | "due" => keys.extend(of(&["thread", "head"], &last)),
        "partial" => keys.extend(of(&["head"], name)),
        "inbox" => {
            let tip = key_of(&chains.json("chain", &first)["tip"]);
            keys.extend(of(&["chain"], &first));
            keys.extend(of(&["head"], &tip));
        }
        _ => keys.extend(of(&["chain"], &first)),
    }
    keys
}

/// Returns the first and the last part of a key.
fn ends(name: &str) -> (String, String) {
    let first = name.split('\u{1}').next().unwrap_or_default();
    let last = name.rsplit('\u{1}').next().unwrap_or_default();
    (unescape(first), unescape(last))
}

/// Returns the owner of a wrong entry, and what should be there instead; `None` if the entry is
/// right or gone.
fn wrong(collection: &str, name: &str, records: &Snapshot) -> Option<(String, String)> {
    if !records.has(collection, name) {
        return None;
    }
    let (first, last) = ends(name);
    let (owner, right) = match collection {
        "index" | "due" => {
            let (thread, head) = (records.json("thread", &last), records.json("head", &last));
            let broken = |record: &Value, of: &str| records.has(of, &last) && !record.is_object();
            // A record that cannot be read is reported already.
            let unread = broken(&thread, "thread") || broken(&head, "head");
            let right = match collection {
                "index" => is_indexed(name, &last, &thread, &head),
                _ => is_due(name, &last, &thread, &head, records),
            };
            (last, unread || right)
        }
        "partial" => {
            let head = records.json("head", name);
            let runs = ["running", "waiting"].contains(&text(&head["status"]));
            (name.to_owned(), runs)
        }
        "inbox" => {
            let tip = key_of(&records.json("chain", &first)["tip"]);
            let head = records.json("head", &tip);
            let waiting = number(&head["mail_from"])..number(&head["mail_to"]);
            let n = u64::from_str_radix(&last, 16);
            (first, n.is_ok_and(|n| waiting.contains(&n)))
        }
        "pin" => {
            let fits = records.text("pin", name).map(digest) == Some(last);
            let has = records.has("chain", &first);
            (first, fits && has)
        }
        _ => {
            let has = records.has("chain", &first);
            (first, has)
        }
    };
    let expected = match collection {
        "pin" => "the text whose hash is its name, of a chain that is there".to_owned(),
        "partial" => "text of a stream only while its thread runs".to_owned(),
        _ => format!("no {collection} entry that no thread names"),
    };
    (!right).then_some((owner, expected))
}

/// Returns true if the thread and its head give exactly this index key.
fn is_indexed(name: &str, key: &str, thread: &Value, head: &Value) -> bool {
    let (moved, made) = (number(&head["recency"]), millis(&thread["created"]));
    let (chain, parent) = (key_of(&thread["chain"]), key_of(&thread["parent"]));
    let (value, at) = match name.split('\u{1}').next().unwrap_or_default() {
        "recency" => ("", moved),
        "status" => (text(&head["status"]), moved),
        "chain" => (chain.as_str(), made),
        "parent" => (parent.as_str(), made),
        "directive" => (text(&thread["directive"]), made),
        "agent" => (text(&thread["agent"]), made),
        "task" => (text(&thread["task"]), made),
        _ => return false,
    };
    let kind = name.split('\u{1}').next().unwrap_or_default();
    head.is_object()
        && (kind == "recency" || !value.is_empty())
        && name == index_key(kind, value, at, key)
}

/// Returns true if the head gives exactly this due time, and the entry names the thread's chain.
fn is_due(name: &str, key: &str, thread: &Value, head: &Value, records: &Snapshot) -> bool {
    let due = head["due"].as_u64();
    let named = due.map(|due| format!("{due:016x}\u{1}{}", escape(key)));
    let root = records.json("due", name)["root"].clone();
    named.as_deref() == Some(name) && text(&root) == key_of(&thread["chain"])
}
