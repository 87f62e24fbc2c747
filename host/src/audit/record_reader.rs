//! Reading of records for an audit: names page by page, values as snapshots, fields from JSON.

use super::{AuditFinding, AuditReport, StoreInvariant, printable_text};
use crate::storage::{
    KEY_BYTES_MAX, PAGE_ENTRIES_MAX, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// Most records of one snapshot, which is a page of a `get`.
pub(super) const SNAPSHOT_MAX: usize = PAGE_ENTRIES_MAX as usize;
/// Longest value that an index key contains unchanged; a longer one is replaced by its digest.
const INDEX_VALUE_BYTES_MAX: usize = 220;

/// Records at one moment. A requested record that does not exist is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordSnapshot {
    items: BTreeMap<RecordKey, Option<(u64, String)>>,
}

impl RecordSnapshot {
    /// Reads these records, in one `get` where they fit. If they do not, they are read until two
    /// rounds in a row show the same versions: then all of them had these versions at a moment
    /// between the rounds. `None` if there was no such moment.
    pub(super) fn read_at_one_moment(
        storage: &dyn StorageBackend,
        keys: &[RecordKey],
    ) -> Result<Option<Self>, StorageError> {
        if let Some(all) = Self::at_once(storage, keys)? {
            return Ok(Some(all));
        }
        let mut before = Self::read_in_parts(storage, keys)?;
        for _ in 0..super::TRIES_MAX {
            let after = Self::read_in_parts(storage, keys)?;
            if after.has_same_versions(&before) {
                return Ok(Some(after));
            }
            before = after;
        }
        Ok(None)
    }

    /// These records in one `get`; `None` if they do not fit one.
    pub(super) fn at_once(
        storage: &dyn StorageBackend,
        keys: &[RecordKey],
    ) -> Result<Option<Self>, StorageError> {
        if keys.len() > SNAPSHOT_MAX {
            return Ok(None);
        }
        match get_possible(storage, keys) {
            Ok(items) => Ok(Some(Self::from_items(keys, items))),
            Err(StorageError::TooLarge { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads records in parts that fit an answer, not all at one moment.
    pub(super) fn read_in_parts(
        storage: &dyn StorageBackend,
        keys: &[RecordKey],
    ) -> Result<Self, StorageError> {
        let mut all = Self::default();
        for part in keys.chunks(SNAPSHOT_MAX / 5) {
            match get_possible(storage, part) {
                Ok(items) => all.items.extend(Self::from_items(part, items).items),
                Err(StorageError::TooLarge { .. }) => {
                    for one in part.chunks(1) {
                        let items = get_possible(storage, one)?;
                        all.items.extend(Self::from_items(one, items).items);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn from_items(keys: &[RecordKey], items: Vec<StoredRecord>) -> Self {
        let mut all: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), None)).collect();
        for item in items {
            all.insert(item.key, Some((item.version, item.value)));
        }
        Self { items: all }
    }

    /// Returns true if every record has the same version in both.
    pub(super) fn has_same_versions(&self, other: &Self) -> bool {
        let versions = |snapshot: &Self| -> Vec<(RecordKey, Option<u64>)> {
            let items = snapshot.items.iter();
            items
                .map(|(key, item)| (key.clone(), item.as_ref().map(|item| item.0)))
                .collect()
        };
        versions(self) == versions(other)
    }

    /// Returns true if the record was requested and does not exist.
    pub(super) fn is_missing(&self, key: &RecordKey) -> bool {
        matches!(self.items.get(key), Some(None))
    }

    /// Reads the same records again; returns true if all versions are unchanged.
    pub(super) fn is_unchanged(&self, storage: &dyn StorageBackend) -> Result<bool, StorageError> {
        let keys: Vec<RecordKey> = self.items.keys().cloned().collect();
        let again = Self::read_at_one_moment(storage, &keys)?;
        Ok(again.is_some_and(|again| again.has_same_versions(self)))
    }

    pub(super) fn has(&self, collection: &str, name: &str) -> bool {
        self.text(collection, name).is_some()
    }

    pub(super) fn text(&self, collection: &str, name: &str) -> Option<&str> {
        let item = self
            .items
            .get(&RecordKey::new(collection, name))?
            .as_ref()?;
        Some(&item.1)
    }

    /// Returns a record as JSON; `Null` if there is none or it cannot be parsed.
    pub(super) fn json(&self, collection: &str, name: &str) -> Value {
        let text = self.text(collection, name).unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// The records of these that exist. One whose name no record can have, because a forged record says
/// it, does not.
fn get_possible(
    storage: &dyn StorageBackend,
    keys: &[RecordKey],
) -> Result<Vec<StoredRecord>, StorageError> {
    let possible = |key: &&RecordKey| (1..=KEY_BYTES_MAX).contains(&key.name.len());
    let keys: Vec<RecordKey> = keys.iter().filter(possible).cloned().collect();
    match keys.is_empty() {
        true => Ok(Vec::new()),
        false => storage.get(&keys),
    }
}

/// The names of a collection in their order, a page at a time.
pub(super) struct CollectionNames<'a> {
    storage: &'a dyn StorageBackend,
    collection: &'static str,
    page: VecDeque<String>,
    from: Option<String>,
    /// True if the collection cannot be read here, and the names come from the index instead.
    by_index: bool,
    /// Set if a record cannot be read: the names after it are read from the end of the collection,
    /// down to this name.
    down_to: Option<String>,
    end: Option<String>,
    last: String,
}

impl<'a> CollectionNames<'a> {
    pub(super) fn new(storage: &'a dyn StorageBackend, collection: &'static str) -> Self {
        Self {
            storage,
            collection,
            page: VecDeque::new(),
            from: Some(String::new()),
            by_index: false,
            down_to: None,
            end: None,
            last: String::new(),
        }
    }

    /// Returns the next name. One record that the store cannot read makes its whole page
    /// unreadable. That is a finding, and the names of the threads after it come from the index.
    pub(super) fn next_name(
        &mut self,
        report: &mut AuditReport,
    ) -> Result<Option<String>, StorageError> {
        loop {
            if let Some(name) = self.page.pop_front() {
                if !self.by_index {
                    self.last.clone_from(&name);
                }
                return Ok(Some(name));
            }
            let Some(from) = self.from.take() else {
                match self.end.take() {
                    Some(end) => self.read_page_from_end(&end, report)?,
                    None => return Ok(None),
                }
                continue;
            };
            match self.by_index {
                false => self.read_collection_page(&from, report)?,
                true => self.read_index_page(&from)?,
            }
        }
    }

    fn read_collection_page(
        &mut self,
        from: &str,
        report: &mut AuditReport,
    ) -> Result<(), StorageError> {
        let page = self
            .storage
            .scan(self.collection, from, "", PAGE_ENTRIES_MAX, false);
        match page {
            Ok(page) => {
                self.from = page.cursor.clone();
                self.page = self.page_names(page, report).into();
                Ok(())
            }
            Err(StorageError::Corrupt { message }) => {
                self.note_unreadable(from, &message, report);
                if matches!(self.collection, "head" | "chain") {
                    self.by_index = true;
                    self.from = Some("chain\u{1}".to_owned());
                } else {
                    self.down_to = Some(from.to_owned());
                    self.end = Some(String::new());
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a page of the names between the end and a record that cannot be read. If there is a
    /// second such record, the names between the two are not read, and a finding reports it.
    fn read_page_from_end(
        &mut self,
        end: &str,
        report: &mut AuditReport,
    ) -> Result<(), StorageError> {
        let from = self.down_to.clone().unwrap_or_default();
        let page = self
            .storage
            .scan(self.collection, &from, end, PAGE_ENTRIES_MAX, true);
        match page {
            Ok(page) => {
                self.end = page.cursor.clone();
                self.page = self.page_names(page, report).into();
                Ok(())
            }
            Err(StorageError::Corrupt { message }) => {
                self.note_unreadable(end, &message, report);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the names of a page, in order. Names of damaged records are findings, and are
    /// audited like the others.
    fn page_names(&self, page: RecordPage, report: &mut AuditReport) -> Vec<String> {
        let mut names: Vec<String> = page.items.into_iter().map(|item| item.key.name).collect();
        for damaged in page.damaged {
            self.note_unreadable(&damaged.name, &damaged.message, report);
            names.extend(Some(damaged.name).filter(|name| !name.is_empty()));
        }
        names.sort();
        names
    }

    fn note_unreadable(&self, near: &str, message: &str, report: &mut AuditReport) {
        report.add(AuditFinding {
            thread: printable_text(near),
            invariant: StoreInvariant::Histories,
            expected: format!(
                "records of the collection {} that can be read",
                self.collection
            ),
            found: format!("{} (`threadkeep doctor` names it)", printable_text(message)),
        });
    }

    fn read_index_page(&mut self, from: &str) -> Result<(), StorageError> {
        let page = self
            .storage
            .scan("index", from, "chain\u{2}", PAGE_ENTRIES_MAX, false)?;
        self.from.clone_from(&page.cursor);
        for name in all_names(page) {
            let mut parts = name.split('\u{1}');
            let part = match self.collection {
                "chain" => parts.nth(1),
                _ => parts.next_back(),
            };
            let name = unescape(part.unwrap_or_default());
            if name > self.last && self.page.back() != Some(&name) {
                self.page.push_back(name);
            }
        }
        Ok(())
    }
}

/// Returns the names of a page of an index, damaged entries included: only the names matter.
pub(super) fn all_names(page: RecordPage) -> Vec<String> {
    let items = page.items.into_iter().map(|item| item.key.name);
    let damaged = page.damaged.into_iter().map(|damaged| damaged.name);
    let mut names: Vec<String> = items
        .chain(damaged)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names
}

/// Returns a text; empty if the value is not one.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a number; 0 if the value is not one.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns the elements; none if the value is not a list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a time in milliseconds; 0 before the epoch.
pub(super) fn millis(time: &Value) -> u64 {
    let seconds = number(&time["seconds"]);
    let nanos = number(&time["nanos"]);
    seconds
        .saturating_mul(1_000)
        .saturating_add(nanos / 1_000_000)
}

/// Returns the storage key of an id.
pub(super) fn key_of(id: &Value) -> String {
    text(id).to_ascii_lowercase()
}

/// Returns the storage key of the root of a thread's tree. A root has an account, so it is the last
/// of the chains whose accounts lie above.
pub(super) fn tree_root(thread: &Value, chain: &Value) -> String {
    key_of(list(&chain["above"]).last().unwrap_or(&thread["chain"]))
}

/// Returns the SHA-256 of a text, in hex.
pub(super) fn sha256_hex(text: &str) -> String {
    to_hex(&Sha256::digest(text.as_bytes()))
}

/// Returns a digest as lower-case hex.
pub(super) fn sha256_hex_of(digest: Sha256) -> String {
    to_hex(&digest.finalize())
}

fn to_hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Computes SHA-256 of the parts, each preceded by its length as eight bytes, as lower-case hex.
pub(super) fn sha256_of_parts(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    to_hex(&hasher.finalize())
}

/// Returns the key of an index entry.
pub(super) fn index_key(name: &str, value: &str, millis: u64, thread: &str) -> String {
    let escaped = escape(value);
    let value = match escaped.len() <= INDEX_VALUE_BYTES_MAX {
        true => escaped,
        false => sha256_hex(value),
    };
    format!(
        "{name}\u{1}{value}\u{1}{millis:016x}\u{1}{}",
        escape(thread)
    )
}

/// Escapes a part of a key: characters that could be taken for a separator become U+0002 and a
/// digit.
pub(super) fn escape(part: &str) -> String {
    part.replace('\u{2}', "\u{2}2")
        .replace('\u{1}', "\u{2}1")
        .replace('\u{0}', "\u{2}0")
}

pub(super) fn unescape(part: &str) -> String {
    part.replace("\u{2}0", "\u{0}")
        .replace("\u{2}1", "\u{1}")
        .replace("\u{2}2", "\u{2}")
}
