//! The audit of entries by which other records are found: each must belong to a thread that
//! confirms it.

use super::read::{
    Names, Snapshot, digest, escape, index_key, key_of, millis, number, text, unescape,
};
use super::{Audit, Invariant, Suspicion, TRIES_MAX, shown};
use crate::storage::{Key, StorageError};
use serde_json::Value;

/// Entries that are checked together: each depends on three records.
const AT_ONCE: usize = 100;
/// Collections of entries that belong to a thread or chain.
const COLLECTIONS: [&str; 6] = ["index", "due", "inbox", "partial", "seen", "pin"];

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
        Ok(())
    }

    /// Audits entries at one common moment if one can be had, as it nearly always can; else one by
    /// one.
    fn entries(&mut self, collection: &str, names: &[String]) -> Result<(), StorageError> {
        let mut keys = Vec::new();
        for name in names {
            keys.extend(self.rests_on(collection, name)?);
        }
        keys.sort();
        keys.dedup();
        let all = match Snapshot::take(self.storage, &keys) {
            Ok(all) => all,
            Err(StorageError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        for name in names {
            let right = all
                .as_ref()
                .is_some_and(|records| wrong(collection, name, records).is_none());
            if !right {
                self.entry(collection, name)?;
            }
        }
        Ok(())
    }

    /// Audits one entry; repeats that while others change the records that it depends on.
    fn entry(&mut self, collection: &str, name: &str) -> Result<(), StorageError> {
        for _ in 0..TRIES_MAX {
            let keys = self.rests_on(collection, name)?;
            let records = match Snapshot::take(self.storage, &keys) {
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
                let invariant = match collection {
                    "pin" => Invariant::Histories,
                    _ => Invariant::Indexes,
                };
                let mut suspicion = Suspicion::about(&thread);
                let found = format!("{collection} {}", shown(name));
                suspicion.of(invariant, expected, found);
                suspicion.report(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }

    /// Returns the keys of the entry and of the records that decide if it belongs there.
    fn rests_on(&self, collection: &str, name: &str) -> Result<Vec<Key>, StorageError> {
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
                let chain = of(&["chain"], &first);
                let tip = match Snapshot::in_parts(self.storage, &chain) {
                    Ok(found) => key_of(&found.json("chain", &first)["tip"]),
                    Err(StorageError::Corrupt { .. }) => String::new(),
                    Err(error) => return Err(error),
                };
                keys.extend(chain);
                keys.extend(of(&["head"], &tip));
            }
            _ => keys.extend(of(&["chain"], &first)),
        }
        Ok(keys)
    }
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
