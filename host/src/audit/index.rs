//! The audit of entries by which other records are found: each must belong to a thread that
//! confirms it.

use super::record_reader::{
    CollectionNames, RecordSnapshot, escape, index_key, key_of, millis, number, sha256_hex, text,
    tree_root, unescape,
};
use super::wait::is_indexed_interruption;
use super::{StoreAudit, StoreInvariant, TRIES_MAX, UnconfirmedFindings, printable_text};
use crate::storage::{RecordKey, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

/// Entries that are checked together: each depends on three records.
const ENTRIES_AT_ONCE: usize = 100;
/// Collections of entries that belong to a thread or chain.
const COLLECTIONS: [&str; 7] = [
    "index", "due", "inbox", "partial", "seen", "pin", "decision",
];
/// Collections of which it is only asked whether their records can be read.
const OTHERS: [&str; 3] = ["state", "signature", "sweep"];

impl StoreAudit<'_> {
    /// Audits every entry of these collections.
    pub(super) fn audit_index_entries(&mut self) -> Result<(), StorageError> {
        for collection in COLLECTIONS {
            let mut names = CollectionNames::new(self.storage, collection);
            let mut some = Vec::with_capacity(ENTRIES_AT_ONCE);
            loop {
                let name = names.next_name(&mut self.report)?;
                let last = name.is_none();
                some.extend(name);
                if some.len() == ENTRIES_AT_ONCE || last {
                    self.audit_entries(collection, &std::mem::take(&mut some))?;
                }
                if last {
                    break;
                }
            }
        }
        for collection in OTHERS {
            let mut names = CollectionNames::new(self.storage, collection);
            while names.next_name(&mut self.report)?.is_some() {}
        }
        Ok(())
    }

    /// All of them at one moment if that can be had, as it nearly always can, and those that are
    /// wrong once more together; else one by one. So a store with many wrong ones takes no longer
    /// than one with many right ones.
    fn audit_entries(&mut self, collection: &str, names: &[String]) -> Result<(), StorageError> {
        let all = match self.entries_at_once(collection, names) {
            Ok(all) => all,
            Err(StorageError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(records) = all else {
            return names
                .iter()
                .try_for_each(|name| self.audit_entry(collection, name));
        };
        let found = names.iter().filter_map(|name| {
            let (thread, expected) = find_fault(collection, name, &records)?;
            Some((name, thread, expected))
        });
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Ok(());
        }
        let stands = records.is_unchanged(self.storage)?;
        for (name, thread, expected) in found {
            match stands {
                true => self.note_entry(collection, name, &thread, expected),
                false => self.audit_entry(collection, name)?,
            }
        }
        Ok(())
    }

    /// Reads the records that these entries rest on, as one snapshot.
    fn entries_at_once(
        &self,
        collection: &str,
        names: &[String],
    ) -> Result<Option<RecordSnapshot>, StorageError> {
        let chains = match collection {
            "inbox" => self.chains_of(names)?,
            "due" | "index" => self.threads_of(collection, names)?,
            _ => RecordSnapshot::default(),
        };
        let rests = names
            .iter()
            .flat_map(|name| dependency_keys(collection, name, &chains));
        let mut keys: Vec<RecordKey> = rests.collect();
        keys.sort();
        keys.dedup();
        match names.len() {
            1 => RecordSnapshot::read_at_one_moment(self.storage, &keys),
            // Those of many that do not fit one answer could take any memory.
            _ => RecordSnapshot::at_once(self.storage, &keys),
        }
    }

    /// The threads of entries that also rest on the chain of their thread, at no common moment.
    fn threads_of(
        &self,
        collection: &str,
        names: &[String],
    ) -> Result<RecordSnapshot, StorageError> {
        let names = names.iter().filter(|name| rests_on_chain(collection, name));
        let threads = names.map(|name| key_ends(name).1);
        let keys: BTreeSet<RecordKey> = threads
            .filter(|thread| !thread.is_empty())
            .map(|thread| RecordKey::new("thread", thread))
            .collect();
        RecordSnapshot::read_in_parts(self.storage, &Vec::from_iter(keys))
    }

    /// The chains that entries of an inbox are for, at no common moment: the tip of each leads to a
    /// head.
    fn chains_of(&self, names: &[String]) -> Result<RecordSnapshot, StorageError> {
        let firsts = names.iter().map(|name| key_ends(name).0);
        let keys: BTreeSet<RecordKey> = firsts
            .filter(|first| !first.is_empty())
            .map(|first| RecordKey::new("chain", first))
            .collect();
        RecordSnapshot::read_in_parts(self.storage, &Vec::from_iter(keys))
    }

    fn note_entry(&mut self, collection: &str, name: &str, thread: &str, expected: String) {
        let invariant = match collection {
            "pin" => StoreInvariant::Histories,
            _ => StoreInvariant::Indexes,
        };
        let mut suspicion = UnconfirmedFindings::for_thread(thread);
        let found = format!("{collection} {}", printable_text(name));
        suspicion.add(invariant, expected, found);
        suspicion.report_to(&mut self.report);
    }

    /// Audits one entry; repeats that while others change the records that it depends on.
    fn audit_entry(&mut self, collection: &str, name: &str) -> Result<(), StorageError> {
        for _ in 0..TRIES_MAX {
            let records = match self.entries_at_once(collection, &[name.to_owned()]) {
                Ok(Some(records)) => records,
                Ok(None) => continue,
                // The record is reported already.
                Err(StorageError::Corrupt { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some((thread, expected)) = find_fault(collection, name, &records) else {
                return Ok(());
            };
            if records.is_unchanged(self.storage)? {
                self.note_entry(collection, name, &thread, expected);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }
}

/// Returns true if the chain of its thread says whether an entry belongs there.
fn rests_on_chain(collection: &str, name: &str) -> bool {
    let kind = name.split('\u{1}').next().unwrap_or_default();
    collection == "due" || matches!(kind, "child" | "interrupted")
}

/// The entry and the records that say whether it belongs there. `known`: the chains or threads that
/// it may be for.
fn dependency_keys(collection: &str, name: &str, known: &RecordSnapshot) -> Vec<RecordKey> {
    let (first, last) = key_ends(name);
    let of = |collections: &[&str], key: &str| -> Vec<RecordKey> {
        // An empty part names no record.
        let named = collections.iter().filter(|_| !key.is_empty());
        named
            .map(|collection| RecordKey::new(*collection, key))
            .collect()
    };
    let mut keys = vec![RecordKey::new(collection, name)];
    match collection {
        "index" | "due" => {
            keys.extend(of(&["thread", "head"], &last));
            keys.extend(of(
                &["chain"],
                &key_of(&known.json("thread", &last)["chain"]),
            ));
        }
        "partial" => keys.extend(of(&["head"], name)),
        "inbox" => {
            let tip = key_of(&known.json("chain", &first)["tip"]);
            keys.extend(of(&["chain"], &first));
            keys.extend(of(&["head"], &tip));
        }
        _ => keys.extend(of(&["chain"], &first)),
    }
    keys
}

/// Returns the first and the last part of a key.
fn key_ends(name: &str) -> (String, String) {
    let first = name.split('\u{1}').next().unwrap_or_default();
    let last = name.rsplit('\u{1}').next().unwrap_or_default();
    (unescape(first), unescape(last))
}

/// Returns the owner of a wrong entry, and what should be there instead; `None` if the entry is
/// right or gone.
fn find_fault(collection: &str, name: &str, records: &RecordSnapshot) -> Option<(String, String)> {
    if !records.has(collection, name) {
        return None;
    }
    let (first, last) = key_ends(name);
    let (owner, right) = match collection {
        "index" | "due" => {
            let (thread, head) = (records.json("thread", &last), records.json("head", &last));
            let broken = |record: &Value, of: &str| records.has(of, &last) && !record.is_object();
            // A record that cannot be read is reported already.
            let unread = broken(&thread, "thread") || broken(&head, "head");
            let right = match collection {
                "index" => {
                    let chain = records.json("chain", &key_of(&thread["chain"]));
                    is_indexed(name, &last, (&thread, &head, &chain))
                }
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
            let fits = records.text("pin", name).map(sha256_hex) == Some(last);
            let has = records.has("chain", &first);
            (first, fits && has)
        }
        // A request to create a thread: the record names it, and stays also where it goes.
        _ if first.is_empty() => {
            let made = records.json(collection, name);
            let thread = key_of(&made["thread"]);
            let right = !thread.is_empty() && made["draft"].is_string();
            (thread, right)
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

/// Returns true if the records of the thread give exactly this index key: the thread, its head, and
/// its chain where the entry rests on that.
fn is_indexed(name: &str, key: &str, (thread, head, record): (&Value, &Value, &Value)) -> bool {
    let (moved, made) = (number(&head["recency"]), millis(&thread["created"]));
    let (chain, parent) = (key_of(&thread["chain"]), key_of(&thread["parent"]));
    let (above, tree) = (key_of(&record["parent"]), tree_root(thread, record));
    let forked = key_of(&thread["fork"]["chain"]);
    let (value, at) = match name.split('\u{1}').next().unwrap_or_default() {
        "recency" => ("", moved),
        "status" => (text(&head["status"]), moved),
        "chain" => (chain.as_str(), made),
        "parent" if thread["previous"].is_null() => (parent.as_str(), made),
        "directive" => (text(&thread["directive"]), made),
        "agent" => (text(&thread["agent"]), made),
        "task" => (text(&thread["task"]), made),
        "fork" => (forked.as_str(), made),
        // Of a chain that another has spawned, under its root.
        "child" if key == chain => (above.as_str(), number(&record["number"])),
        "interrupted" if is_indexed_interruption(head, record) => (tree.as_str(), moved),
        _ => return false,
    };
    let kind = name.split('\u{1}').next().unwrap_or_default();
    head.is_object()
        && (kind == "recency" || !value.is_empty())
        && name == index_key(kind, value, at, key)
}

/// Returns true if the head gives exactly this due time, and the entry names the thread's tree, or
/// its chain, as earlier builds did.
fn is_due(name: &str, key: &str, thread: &Value, head: &Value, records: &RecordSnapshot) -> bool {
    let due = head["due"].as_u64();
    let named = due.map(|due| format!("{due:016x}\u{1}{}", escape(key)));
    let entry = records.json("due", name);
    let chain = key_of(&thread["chain"]);
    let right = match entry["tree"].is_null() {
        true => text(&entry["root"]) == chain,
        false => text(&entry["tree"]) == tree_root(thread, &records.json("chain", &chain)),
    };
    named.as_deref() == Some(name) && right
}
