//! The audit of what a thread rests on: the parts of its base, the entries that they name, and the
//! calls that those leave open.

use super::history::PAGE_ENTRIES;
use super::record_reader::{RecordSnapshot, key_of, list, number, sha256_hex, text};
use super::thread::ThreadRecords;
use super::{StoreAudit, StoreInvariant, UnconfirmedFindings, printable_text};
use crate::storage::{RecordKey, StorageError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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

    /// Returns the calls without a result at the end of a thread's base, by version and index: the
    /// thread that rests on them answers them. `None` if entries of the base cannot be read, which
    /// is a finding of [`Self::check_base`].
    pub(super) fn calls_open_in_base(
        &self,
        thread: &Value,
    ) -> Result<Option<BTreeSet<(u64, u64)>>, StorageError> {
        let own = key_of(&thread["id"]);
        let mut newest_first = Vec::new();
        for part in list(&thread["base"]["parts"]).iter().rev() {
            let key = key_of(&part["thread"]);
            if key == own {
                continue;
            }
            match self.read_last_round(&key, part, &mut newest_first) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => break,
                Ok(None) | Err(StorageError::Corrupt { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let mut open = BTreeSet::new();
        for (version, entry) in newest_first.iter().rev() {
            for (index, event) in list(&entry["events"]).iter().enumerate() {
                match text(&event["type"]) {
                    "tool_use" => open.insert((*version, index as u64)),
                    "tool_result" => {
                        open.remove(&(number(&event["version"]), number(&event["index"])))
                    }
                    _ => false,
                };
            }
        }
        Ok(Some(open))
    }

    /// Adds the entries of a part, newest first, down to the last calls of a model or to the last
    /// request to one, at which no call is open. Returns true if the part has neither, and `None`
    /// if an entry is missing.
    fn read_last_round(
        &self,
        key: &str,
        part: &Value,
        newest_first: &mut Vec<(u64, Value)>,
    ) -> Result<Option<bool>, StorageError> {
        let Some(length) = self.base_length_of(key)? else {
            return Ok(None);
        };
        let (from, mut next) = (number(&part["from"]), number(&part["to"]));
        while next >= from && next > length {
            let position = next - length;
            let page = u32::try_from(next - from + 1).map_or(PAGE_ENTRIES, |n| n.min(PAGE_ENTRIES));
            let lines = self
                .storage
                .read_log("history", key, position, page, true)?;
            if lines.first().is_none_or(|line| line.position != position) {
                return Ok(None);
            }
            for line in lines {
                let entry: Value = serde_json::from_str(&line.value).unwrap_or_default();
                if !entry.is_object() {
                    return Ok(None);
                }
                let admitted = &entry["admitted"];
                if admitted.is_object() && admitted["key"].is_null() {
                    return Ok(Some(false));
                }
                let mut events = list(&entry["events"]).iter();
                let calls = events.any(|event| text(&event["type"]) == "tool_use");
                newest_first.push((line.position + length, entry));
                if calls {
                    return Ok(Some(false));
                }
                next = line.position + length - 1;
            }
        }
        Ok(Some(true))
    }

    /// Returns the length of the base of a thread; `None` if its record is missing.
    fn base_length_of(&self, key: &str) -> Result<Option<u64>, StorageError> {
        let found = RecordSnapshot::read_in_parts(self.storage, &[RecordKey::new("thread", key)])?;
        let owner = found.json("thread", key);
        let length = number(&owner["base"]["length"]);
        Ok(owner.is_object().then_some(length))
    }

    /// Returns the hash of an own entry of a thread; `None` if there is none or it cannot be read,
    /// which is a finding about that thread.
    fn hash_of_entry(&self, key: &str, version: u64) -> Result<Option<String>, StorageError> {
        let length = match self.base_length_of(key) {
            Ok(Some(length)) => length,
            Ok(None) | Err(StorageError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let position = version.saturating_sub(length);
        if position == 0 {
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
