//! Blobs: the bytes of images and of large results, which never pass through the component.
//!
//! They stand in the tenant's own store, so that its quota counts them and every copy of the store
//! has them. `wit/storage.wit` describes the record and the lines, which every host writes alike.
//! This module writes and reads them; what it needs to know of a thread a host tells it
//! ([`BlobThreads`]).

mod error;
mod recorded_threads;
mod result_blobs;
mod thread_blobs;
mod write;

pub use error::BlobError;
pub use recorded_threads::{RecordedThreads, UnreadThread};
pub use result_blobs::{StoredResult, UnstoredResult};
pub use thread_blobs::{BlobThread, BlobThreads, ThreadBlobs};
pub use write::{BlobWrite, chain_version, write_blob};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;
use threadkeep_storage::{PAGE_ENTRIES_MAX, RecordKey, StorageBackend, StoredRecord};

/// Most bytes of one blob.
pub const BLOB_BYTES_MAX: usize = 20 << 20;
/// Bytes of a blob in one line of the log: as Base64 half of the longest value of a store.
pub const LINE_BYTES: usize = 384 << 10;
/// Time for which a blob that nothing names stays. No call of a tool, no lease and no run of a
/// command goes on for as long between a blob and its message.
pub const BLOB_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// Collection of the records, and log of the lines.
pub const BLOB: &str = "blob";
/// Digits of a name that people and models are shown.
const SHOWN_DIGITS: usize = 12;

/// The name of a blob that is stored, as messages and outcomes of tools say it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
pub fn size_text(bytes: u64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

/// Returns the SHA-256 of these bytes in lower-case hexadecimal digits.
pub fn hex_digest(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the name of the record of a blob, and of the partition of its lines. Ids of threads have
/// no control characters, so nothing has to be escaped.
pub fn blob_key(chain: &str, hash: &str) -> String {
    format!("{}\u{1}{hash}", chain.to_lowercase())
}

/// Number of lines of so many bytes.
fn line_count(bytes: usize) -> u64 {
    bytes.div_ceil(LINE_BYTES) as u64
}

/// The record of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobState {
    /// Bytes of the blob.
    pub size: u64,
    /// Its media type.
    pub media: String,
    /// Number of its lines.
    pub parts: u64,
    /// Lines that are written.
    pub written: u64,
    /// Time at which a host last stored it, in seconds since 1970; `None` in a record of a host
    /// that keeps none.
    pub stored: Option<i64>,
}

impl BlobState {
    /// Reads a record; `name` is its key.
    ///
    /// # Errors
    /// [`BlobError::Damaged`].
    pub fn read<C: Error + 'static>(name: &str, text: &str) -> Result<Self, BlobError<C>> {
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

    /// Returns the text of the record.
    pub fn to_text(&self) -> String {
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

    /// Returns true if every line is written.
    pub fn is_whole(&self) -> bool {
        self.written == self.parts
    }
}

/// Reads the record of a blob, with its version; `None` if there is none.
///
/// # Errors
/// [`BlobError::Damaged`], and those of the store.
pub fn read_state<C: Error + 'static>(
    storage: &dyn StorageBackend,
    name: &str,
) -> Result<Option<(u64, BlobState)>, BlobError<C>> {
    let found = storage.get(&[RecordKey::new(BLOB, name)])?;
    let state = |record: &StoredRecord| Ok((record.version, BlobState::read(name, &record.value)?));
    found.first().map(state).transpose()
}

/// Reads the bytes of a blob, and compares their hash with its name.
///
/// # Errors
/// [`BlobError::Missing`], [`BlobError::Damaged`], and those of the store.
pub fn read_blob<C: Error + 'static>(
    storage: &dyn StorageBackend,
    chain: &str,
    hash: &str,
) -> Result<Vec<u8>, BlobError<C>> {
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
