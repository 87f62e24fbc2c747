//! Blobs that no history and no waiting message names: what a crash between a blob and its message
//! leaves, or an outcome that was never submitted.

use super::{BLOB, BlobError, BlobState};
use crate::storage::{PAGE_ENTRIES_MAX, RecordPage, StorageBackend, StorageError};
use serde_json::Value;
use std::collections::BTreeSet;

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

/// Lists the blobs of a store that nothing names. A blob is written before its message, so one that
/// a run is writing at this moment is listed as well: whoever removes some does so while nothing
/// runs.
///
/// Every history and every waiting message of the store is read.
///
/// # Errors
/// Those of the store.
pub fn list_unreferenced_blobs(
    storage: &dyn StorageBackend,
) -> Result<Vec<UnreferencedBlob>, BlobError> {
    let mut blobs = Vec::new();
    for_each_record(storage, BLOB, &mut |name, value| {
        let Some((chain, hash)) = name.split_once('\u{1}') else {
            return;
        };
        let size = value.and_then(|value| BlobState::read(name, value).ok());
        blobs.push(UnreferencedBlob {
            chain: chain.to_owned(),
            hash: hash.to_owned(),
            size: size.map_or(0, |state| state.size),
        });
    })?;
    if blobs.is_empty() {
        return Ok(blobs);
    }
    let mut named = BTreeSet::new();
    // The record of a message that waits does not name its chain: the key of the record does.
    for_each_record(storage, "inbox", &mut |name, value| {
        let chain = name.split('\u{1}').next().unwrap_or_default();
        collect_names(value.unwrap_or_default(), chain, &mut named);
    })?;
    let mut threads = Vec::new();
    for_each_record(storage, "thread", &mut |name, _| {
        threads.push(name.to_owned())
    })?;
    for thread in threads {
        collect_history(storage, &thread, &mut named)?;
    }
    blobs.retain(|blob| !named.contains(&(blob.chain.clone(), blob.hash.clone())));
    Ok(blobs)
}

/// Calls `each` with the name of every record, and its value if it can be read.
fn for_each_record(
    storage: &dyn StorageBackend,
    collection: &str,
    each: &mut dyn FnMut(&str, Option<&str>),
) -> Result<(), StorageError> {
    let mut start = String::new();
    loop {
        let page = storage.scan(collection, &start, "", PAGE_ENTRIES_MAX, false)?;
        let RecordPage {
            items,
            damaged,
            cursor,
        } = page;
        for item in &items {
            each(&item.key.name, Some(&item.value));
        }
        for item in &damaged {
            each(&item.name, None);
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
) -> Result<(), StorageError> {
    let mut next = 1;
    loop {
        let entries = storage.read_log("history", thread, next, PAGE_ENTRIES_MAX, false)?;
        let Some(last) = entries.last() else {
            return Ok(());
        };
        next = last.position + 1;
        for entry in &entries {
            collect_names(&entry.value, "", named);
        }
    }
}

/// Adds the blobs that a stored text names.
fn collect_names(text: &str, chain: &str, named: &mut BTreeSet<(String, String)>) {
    if !text.contains("\"blob\"") {
        return;
    }
    if let Ok(value) = serde_json::from_str(text) {
        collect_from_value(&value, chain, named);
    }
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
