//! Blobs: the bytes of images and of large results, which never pass through the component.
//!
//! They stand in the tenant's own store, so that its quota counts them and every copy of the store
//! has them. `wit/storage.wit` describes the record and the lines, which every host writes alike.
//! This module writes and reads them; it knows no thread. [`Tenant::store_blob`] writes one for a
//! thread that can still take it.
//!
//! [`Tenant::store_blob`]: crate::tenant::Tenant::store_blob

mod error;
mod prune;
mod references;
mod write;

pub use error::BlobError;
pub use prune::{BLOB_GRACE, prune_blobs};
pub use references::{UnreferencedBlob, list_unreferenced_blobs};
pub use threadkeep_adapters::image_type::{IMAGE_BYTES_MAX, image_type};
pub(crate) use write::chain_version;
pub use write::{BlobWrite, write_blob};

use crate::storage::{PAGE_ENTRIES_MAX, RecordKey, StorageBackend};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Most bytes of one blob.
pub const BLOB_BYTES_MAX: usize = 20 << 20;
/// Bytes of a blob in one line of the log: as Base64 half of the longest value of a store.
const LINE_BYTES: usize = 384 << 10;
/// Collection of the records, and log of the lines.
const BLOB: &str = "blob";
/// Digits of a name that people and models are shown.
const SHOWN_DIGITS: usize = 12;

/// The name of a blob that is stored, as messages and outcomes of tools say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobName {
    /// SHA-256 of the bytes, in lower-case hexadecimal digits.
    pub hash: String,
    /// Media type, such as `image/png`.
    pub media: String,
    /// Number of bytes.
    pub size: u64,
}

impl BlobName {
    /// Names these bytes.
    pub fn of(bytes: &[u8], media: &str) -> Self {
        Self {
            hash: hex_digest(bytes),
            media: media.to_owned(),
            size: bytes.len() as u64,
        }
    }

    /// Returns the JSON block that names it as an image.
    pub fn image_block(&self) -> Value {
        self.block("image")
    }

    /// Returns the JSON block that names it as other bytes.
    pub fn blob_block(&self) -> Value {
        self.block("blob")
    }

    fn block(&self, kind: &str) -> Value {
        json!({"type": kind, "blob": self.hash, "media": self.media, "size": self.size})
    }

    /// The beginning of the hash, by which people and models are told of it.
    pub fn short(&self) -> &str {
        self.hash.get(..SHOWN_DIGITS).unwrap_or(&self.hash)
    }

    /// Describes it as the component does: `[image png, 34 KB, 0123456789ab]`, or with why it is
    /// not there.
    pub fn image_label(&self, why: Option<&str>) -> String {
        let media = self.media.strip_prefix("image/").unwrap_or(&self.media);
        let (size, name) = (size_text(self.size), self.short());
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        format!("[image {media}, {size}, {name}{why}]")
    }
}

/// Returns a number of bytes for people.
pub(crate) fn size_text(bytes: u64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

/// Returns the SHA-256 of these bytes in lower-case hexadecimal digits.
fn hex_digest(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the name of the record of a blob, and of the partition of its lines. Ids of threads have
/// no control characters, so nothing has to be escaped.
fn blob_key(chain: &str, hash: &str) -> String {
    format!("{}\u{1}{hash}", chain.to_lowercase())
}

/// Number of lines of so many bytes.
fn line_count(bytes: usize) -> u64 {
    bytes.div_ceil(LINE_BYTES) as u64
}

/// The record of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BlobState {
    size: u64,
    media: String,
    parts: u64,
    written: u64,
    /// Time at which a host last stored it, in seconds since 1970; `None` in a record of a host
    /// that keeps none.
    stored: Option<i64>,
}

impl BlobState {
    fn read(name: &str, text: &str) -> Result<Self, BlobError> {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let number = |field: &str| value[field].as_u64();
        let state = (|| {
            Some(Self {
                size: number("size")?,
                media: value["media"].as_str()?.to_owned(),
                parts: number("parts")?,
                written: number("written")?,
                stored: value["stored"].as_i64(),
            })
        })();
        state.ok_or_else(|| BlobError::from_damage(name, "its record cannot be read"))
    }

    fn to_text(&self) -> String {
        let Self {
            size,
            media,
            parts,
            written,
            stored,
        } = self;
        let mut text = json!({"size": size, "media": media, "parts": parts, "written": written});
        if let Some(stored) = stored {
            text["stored"] = json!(stored);
        }
        text.to_string()
    }

    fn is_whole(&self) -> bool {
        self.written == self.parts
    }
}

/// Reads the record of a blob, with its version; `None` if there is none.
fn read_state(
    storage: &dyn StorageBackend,
    name: &str,
) -> Result<Option<(u64, BlobState)>, BlobError> {
    let found = storage.get(&[RecordKey::new(BLOB, name)])?;
    let state = |record: &crate::storage::StoredRecord| {
        Ok((record.version, BlobState::read(name, &record.value)?))
    };
    found.first().map(state).transpose()
}

/// Reads the bytes of a blob, and compares their hash with its name.
///
/// # Errors
/// [`BlobError::Missing`], [`BlobError::Damaged`], and those of the store.
pub fn read_blob(
    storage: &dyn StorageBackend,
    chain: &str,
    hash: &str,
) -> Result<Vec<u8>, BlobError> {
    let name = blob_key(chain, hash);
    let Some((_, state)) = read_state(storage, &name)? else {
        return Err(BlobError::Missing(hash.to_owned()));
    };
    if !state.is_whole() {
        return Err(BlobError::from_damage(hash, "it is not wholly written"));
    }
    let mut bytes = Vec::new();
    let mut next = 1;
    while next <= state.parts {
        let lines = storage.read_log(BLOB, &name, next, PAGE_ENTRIES_MAX, false)?;
        if lines.is_empty() {
            return Err(BlobError::from_damage(hash, "lines of it are missing"));
        }
        for line in lines {
            let decoded = STANDARD.decode(&line.value);
            let decoded =
                decoded.map_err(|_| BlobError::from_damage(hash, "a line is no Base64"))?;
            if bytes.len() + decoded.len() > BLOB_BYTES_MAX {
                return Err(BlobError::from_damage(
                    hash,
                    "it is larger than a blob may be",
                ));
            }
            bytes.extend(decoded);
            next = line.position + 1;
        }
    }
    match hex_digest(&bytes) == hash {
        true => Ok(bytes),
        false => Err(BlobError::from_damage(
            hash,
            "its bytes are not those of its name",
        )),
    }
}

#[cfg(test)]
mod tests;
