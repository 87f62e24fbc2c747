//! The audit of what a thread rests on: the parts of its base, and the entries that they name.

use super::record_reader::{RecordSnapshot, key_of, list, number, sha256_hex, text};
use super::thread::ThreadRecords;
use super::{StoreAudit, StoreInvariant, UnconfirmedFindings, printable_text};
use crate::storage::{RecordKey, StorageError};
use serde_json::Value;
use std::collections::BTreeMap;

impl StoreAudit<'_> {
    /// Checks the parts of a thread's base, if it has one: they are in order and reach to its
    /// length, and the entry that each ends with has the hash that the part names.
    pub(super) fn check_base(
        &self,
        seen: &ThreadRecords,
        suspicion: &mut UnconfirmedFindings,
    ) -> Result<(), StorageError> {
        let base = &seen.thread["base"];
        if base.is_null() {
            return Ok(());
        }
        let length = number(&base["length"]);
        // Those of one thread ascend, and no version is carried twice.
        let mut last_by_thread = BTreeMap::from([(seen.key.clone(), length)]);
        let mut carried = Vec::new();
        for part in list(&base["parts"]) {
            let key = key_of(&part["thread"]);
            let is_own = key == seen.key;
            let last = last_by_thread.entry(key.clone()).or_default();
            let (from, to) = (number(&part["from"]), number(&part["to"]));
            if !is_own {
                carried.push((from, to));
            }
            if from <= *last || to < from {
                let found = format!("{from} to {to} of {} after {last}", printable_text(&key));
                let expected = "a base whose parts are in order";
                suspicion.add(StoreInvariant::Histories, expected, found);
            }
            *last = to;
            let written = match is_own {
                true => None,
                false => self.hash_of_entry(&key, to)?,
            };
            if !is_own && written.as_deref() != Some(text(&part["hash"])) {
                let what = match written {
                    Some(_) => "another hash: one of the two was changed",
                    None => "no such entry",
                };
                let of = printable_text(&key);
                let expected = format!("the hash of the entry {to} of {of}, on which it rests");
                suspicion.add(StoreInvariant::Histories, expected, what);
            }
        }
        carried.sort_unstable();
        for pair in carried.windows(2).filter(|pair| pair[1].0 <= pair[0].1) {
            let found = format!("the version {} twice", pair[1].0);
            suspicion.add(
                StoreInvariant::Histories,
                "a base that names a version once",
                found,
            );
        }
        let reached = carried.last().map_or(0, |(_, to)| *to);
        let expected = format!("a base that reaches to the version {length}");
        let found = format!("one that reaches to {reached}");
        let wrong = reached != length || length == 0;
        suspicion.add_if(StoreInvariant::Histories, wrong, &expected, &found);
        Ok(())
    }

    /// Returns the hash of an own entry of a thread; `None` if there is none or it cannot be read,
    /// which is a finding about that thread.
    fn hash_of_entry(&self, key: &str, version: u64) -> Result<Option<String>, StorageError> {
        let found = RecordSnapshot::read_in_parts(self.storage, &[RecordKey::new("thread", key)]);
        let owner: Value = match found {
            Ok(found) => found.json("thread", key),
            Err(StorageError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let position = version.saturating_sub(number(&owner["base"]["length"]));
        if position == 0 || !owner.is_object() {
            return Ok(None);
        }
        match self.storage.read_log("history", key, position, 1, false) {
            Ok(lines) => Ok(lines
                .first()
                .filter(|line| line.position == position)
                .map(|line| sha256_hex(&line.value))),
            Err(StorageError::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
