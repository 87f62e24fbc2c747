//! The audit of blobs: each has the bytes of its name, and what an entry names is there.

use super::record_reader::{CollectionNames, list, number, sha256_hex_of, text};
use super::{StoreAudit, StoreInvariant, TRIES_MAX, UnconfirmedFindings, printable_text};
use crate::storage::{PAGE_ENTRIES_MAX, RecordKey, StorageBackend, StorageError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

impl StoreAudit<'_> {
    /// Audits every blob.
    pub(super) fn audit_blobs(&mut self) -> Result<(), StorageError> {
        let mut names = CollectionNames::new(self.storage, "blob");
        while let Some(name) = names.next_name(&mut self.report)? {
            self.audit_blob(&name)?;
        }
        Ok(())
    }

    fn audit_blob(&mut self, name: &str) -> Result<(), StorageError> {
        let (chain, hash) = name.split_once('\u{1}').unwrap_or((name, ""));
        for _ in 0..TRIES_MAX {
            let Some((version, record)) = read_record(self.storage, name)? else {
                return Ok(());
            };
            let mut suspicion = UnconfirmedFindings::for_thread(chain);
            let found = StoredLines::read(self.storage, name)?;
            let shown = format!("the blob {}", printable_text(hash));
            check_lines(&record, hash, &found, &shown, &mut suspicion);
            let owner = RecordKey::new("chain", chain);
            let orphan = self.storage.get(&[owner])?.is_empty();
            let expected = format!("the chain of {shown}");
            suspicion.add_if(StoreInvariant::Indexes, orphan, &expected, "none");
            if suspicion.is_empty() {
                return Ok(());
            }
            // Another writer may have added lines in between.
            if read_record(self.storage, name)?.is_some_and(|(now, _)| now == version) {
                suspicion.report_to(&mut self.report);
                return Ok(());
            }
        }
        self.report.unsettled += 1;
        Ok(())
    }
}

/// Compares the lines of a blob with its record, and those of a whole one with its name.
fn check_lines(
    record: &Value,
    hash: &str,
    found: &StoredLines,
    shown: &str,
    suspicion: &mut UnconfirmedFindings,
) {
    let invariant = StoreInvariant::Histories;
    let (written, parts) = (number(&record["written"]), number(&record["parts"]));
    suspicion.expect_equal(
        invariant,
        &format!("lines of {shown}:"),
        written,
        found.lines,
    );
    if written < parts {
        // A writer was stopped, or is at work.
        return;
    }
    suspicion.expect_equal(invariant, &format!("parts of {shown}:"), parts, written);
    let size = number(&record["size"]);
    suspicion.expect_equal(invariant, &format!("bytes of {shown}:"), size, found.bytes);
    let wrong = found.hash != hash;
    let expected = format!("the bytes of {shown}");
    suspicion.add_if(invariant, wrong, &expected, "others: they were changed");
}

/// Checks that the blobs which an entry names are there: they are written before it, and stay.
pub(super) fn check_named_blobs(
    storage: &dyn StorageBackend,
    (version, stored): (u64, &str),
    suspicion: &mut UnconfirmedFindings,
) -> Result<(), StorageError> {
    if !stored.contains("\"blob\"") {
        return Ok(());
    }
    let entry: Value = serde_json::from_str(stored).unwrap_or_default();
    for event in list(&entry["events"]) {
        for block in list(&event["content"]).iter().chain(list(&event["blocks"])) {
            let hash = text(&block["blob"]);
            if hash.is_empty() {
                continue;
            }
            let name = format!("{}\u{1}{hash}", text(&block["chain"]).to_lowercase());
            let record = read_record(storage, &name)?;
            let same = |(_, record): &(u64, Value)| {
                number(&record["size"]) == number(&block["size"])
                    && number(&record["written"]) == number(&record["parts"])
            };
            if !record.as_ref().is_some_and(same) {
                let shown = printable_text(hash);
                let expected = format!("the blob {shown}, whole, which the entry {version} names");
                let found = match record {
                    Some((_, record)) => printable_text(&record.to_string()),
                    None => "none".to_owned(),
                };
                suspicion.add(StoreInvariant::Histories, expected, found);
            }
        }
    }
    Ok(())
}

/// Reads the record of a blob; one that cannot be read is reported with its collection.
fn read_record(
    storage: &dyn StorageBackend,
    name: &str,
) -> Result<Option<(u64, Value)>, StorageError> {
    let found = match storage.get(&[RecordKey::new("blob", name)]) {
        Err(StorageError::Corrupt { .. }) => return Ok(None),
        found => found?,
    };
    let read = |record: &crate::storage::StoredRecord| {
        let value = serde_json::from_str(&record.value).unwrap_or_default();
        (record.version, value)
    };
    Ok(found.first().map(read))
}

/// Number, bytes and hash of the lines of a blob.
struct StoredLines {
    lines: u64,
    bytes: u64,
    hash: String,
}

impl StoredLines {
    fn read(storage: &dyn StorageBackend, name: &str) -> Result<Self, StorageError> {
        let (mut lines, mut bytes, mut digest) = (0, 0, Sha256::new());
        loop {
            let page = match storage.read_log("blob", name, lines + 1, PAGE_ENTRIES_MAX, false) {
                // What cannot be read is missing.
                Err(StorageError::Corrupt { .. }) => Vec::new(),
                page => page?,
            };
            if page.is_empty() {
                let hash = sha256_hex_of(digest);
                return Ok(Self { lines, bytes, hash });
            }
            for line in page {
                lines = line.position;
                let decoded = STANDARD.decode(&line.value).unwrap_or_default();
                bytes += decoded.len() as u64;
                digest.update(&decoded);
            }
        }
    }
}
