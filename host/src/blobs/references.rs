//! Blobs that no history and no waiting message names: what a crash between a blob and its message
//! leaves, or an outcome that was never submitted.

use super::{BLOB, BlobError, BlobState};
use crate::error::CallError;
use crate::storage::{PAGE_ENTRIES_MAX, RecordPage, StorageBackend, StoredRecord};
use serde_json::Value;
use std::collections::BTreeSet;

/// The problem of a record or a history that may name blobs.
const UNREAD: &str = "it cannot be read, so nobody knows which blobs it names";

/// A blob that nothing names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreferencedBlob {
    /// Key of the chain that has it: the id of its first thread in lower case.
    pub chain: String,
    /// SHA-256 of the bytes.
    pub hash: String,
    /// Number of bytes that the whole blob has; 0 if its record cannot be read.
    pub size: u64,
}

/// A blob that nothing names, with its record.
pub(super) struct LooseBlob {
    pub blob: UnreferencedBlob,
    /// Version of the record.
    pub version: u64,
    /// Its record; `None` if that cannot be read.
    pub state: Option<BlobState>,
}

/// Lists the blobs of a store that nothing names. A blob is written before its message, so one that
/// a run is writing at this moment is listed as well: [`super::prune_blobs`] leaves it.
///
/// Every history and every waiting message of the store is read.
///
/// # Errors
/// Those of the store, and [`BlobError::Damaged`] if a record or an entry cannot be read that may
/// name blobs.
pub fn list_unreferenced_blobs(
    storage: &dyn StorageBackend,
) -> Result<Vec<UnreferencedBlob>, BlobError> {
    let loose = list_loose_blobs(storage)?.into_iter();
    Ok(loose.map(|loose| loose.blob).collect())
}

/// As [`list_unreferenced_blobs`], with their records.
pub(super) fn list_loose_blobs(storage: &dyn StorageBackend) -> Result<Vec<LooseBlob>, BlobError> {
    let mut blobs = Vec::new();
    for_each_record(storage, BLOB, &mut |name, stored| {
        let Some((chain, hash)) = name.split_once('\u{1}') else {
            return Ok(());
        };
        let state =
            stored.and_then(|stored| BlobState::read::<CallError>(name, &stored.value).ok());
        // Of one that was removed the record stays.
        if state.as_ref().is_some_and(|state| state.written == 0) {
            return Ok(());
        }
        blobs.push(LooseBlob {
            blob: UnreferencedBlob {
                chain: chain.to_owned(),
                hash: hash.to_owned(),
                size: state.as_ref().map_or(0, |state| state.size),
            },
            version: stored.map_or(0, |stored| stored.version),
            state,
        });
        Ok(())
    })?;
    if blobs.is_empty() {
        return Ok(blobs);
    }
    let mut named = BTreeSet::new();
    // The record of a message that waits does not name its chain: the key of the record does.
    for_each_record(storage, "inbox", &mut |name, stored| {
        let chain = name.split('\u{1}').next().unwrap_or_default();
        let unread = || BlobError::from_damage(name, UNREAD);
        collect_names(&stored.ok_or_else(unread)?.value, chain, &mut named).ok_or_else(unread)
    })?;
    let mut threads = Vec::new();
    for_each_record(storage, "thread", &mut |name, _| {
        threads.push(name.to_owned());
        Ok(())
    })?;
    for thread in threads {
        collect_history(storage, &thread, &mut named)?;
    }
    blobs.retain(|loose| {
        let blob = &loose.blob;
        !named.contains(&(blob.chain.clone(), blob.hash.clone()))
    });
    Ok(blobs)
}

/// A function that is given each record, by its name.
type RecordVisit<'a> = dyn FnMut(&str, Option<&StoredRecord>) -> Result<(), BlobError> + 'a;

/// Calls `each` with the name of every record, and the record if it can be read.
fn for_each_record(
    storage: &dyn StorageBackend,
    collection: &str,
    each: &mut RecordVisit<'_>,
) -> Result<(), BlobError> {
    let mut start = String::new();
    loop {
        let page = storage.scan(collection, &start, "", PAGE_ENTRIES_MAX, false)?;
        let RecordPage {
            items,
            damaged,
            cursor,
        } = page;
        for item in &items {
            each(&item.key.name, Some(item))?;
        }
        for item in &damaged {
            each(&item.name, None)?;
        }
        match cursor {
            Some(cursor) => start = cursor,
            None => return Ok(()),
        }
    }
}

fn collect_history(
    storage: &dyn StorageBackend,
    thread: &str,
    named: &mut BTreeSet<(String, String)>,
) -> Result<(), BlobError> {
    let mut next = 1;
    loop {
        let entries = storage.read_log("history", thread, next, PAGE_ENTRIES_MAX, false)?;
        let Some(last) = entries.last() else {
            return Ok(());
        };
        next = last.position + 1;
        for entry in &entries {
            let found = collect_names(&entry.value, "", named);
            found.ok_or_else(|| BlobError::from_damage(thread, UNREAD))?;
        }
    }
}

/// Adds the blobs that a stored text names; `None` for a text that cannot be read and may name
/// some.
fn collect_names(text: &str, chain: &str, named: &mut BTreeSet<(String, String)>) -> Option<()> {
    if text.contains("\"blob\"") {
        collect_from_value(&serde_json::from_str(text).ok()?, chain, named);
    }
    Some(())
}

fn collect_from_value(value: &Value, chain: &str, named: &mut BTreeSet<(String, String)>) {
    match value {
        Value::Array(items) => {
            for item in items {
                collect_from_value(item, chain, named);
            }
        }
        Value::Object(fields) => {
            if let Some(hash) = fields.get("blob").and_then(Value::as_str) {
                let own = fields.get("chain").and_then(Value::as_str);
                let chain = own.unwrap_or(chain).to_lowercase();
                named.insert((chain, hash.to_owned()));
            }
            for field in fields.values() {
                collect_from_value(field, chain, named);
            }
        }
        _ => {}
    }
}
