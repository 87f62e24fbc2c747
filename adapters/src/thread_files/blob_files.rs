//! `blobs.d`: the images and large results that a transcript names, as files beside it.
//!
//! A file is written before the lines that name it, so a transcript never names one that is not
//! there, unless the store itself cannot give it. It is named by the SHA-256 of its bytes and never
//! changes.

use super::ThreadFileError;
use super::document_directory::{DocumentDirectory, FileReplacement, MissingDirectory};
use super::document_records::DocumentRecords;
use serde_json::Value;
use std::sync::Arc;

/// Name of the directory, in that of a thread.
pub const BLOBS_DIR: &str = "blobs.d";
/// Length of a SHA-256 in hexadecimal digits.
const HASH_DIGITS: usize = 64;

/// A blob that a line names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedBlob {
    chain: String,
    hash: String,
    media: String,
    size: u64,
}

impl NamedBlob {
    fn read(block: &Value) -> Option<Self> {
        let hash = block["blob"].as_str()?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(digit);
        is_hash.then_some(())?;
        Some(Self {
            chain: block["chain"].as_str()?.to_owned(),
            hash: hash.to_owned(),
            media: block["media"].as_str().unwrap_or_default().to_owned(),
            size: block["size"].as_u64()?,
        })
    }
}

/// Returns the name of the file of a blob with this hash and media type.
pub fn blob_file_name(hash: &str, media: &str) -> String {
    let extension = match media {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "text/plain" => "txt",
        _ => "bin",
    };
    format!("{hash}.{extension}")
}

/// Returns the blobs that lines of a transcript name.
fn named_blobs(lines: &str) -> Vec<NamedBlob> {
    let mut named = Vec::new();
    for line in lines.lines().filter(|line| line.contains("\"blob\"")) {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        for field in ["images", "blocks"] {
            let blocks = event[field].as_array();
            named.extend(blocks.into_iter().flatten().filter_map(NamedBlob::read));
        }
    }
    named
}

/// Writes the files of the blobs that these lines name and that are not there yet.
///
/// # Errors
/// Those of the files. A blob that the store cannot give is left out: the audit tells of it.
pub(super) fn write_blob_files<R: DocumentRecords>(
    records: &R,
    place: &DocumentDirectory,
    lines: &str,
) -> Result<(), ThreadFileError> {
    for blob in named_blobs(lines) {
        let name = blob_file_name(&blob.hash, &blob.media);
        let directory = place.open_inner(BLOBS_DIR, MissingDirectory::Make)?;
        let directory = Arc::new(directory.ok_or(ThreadFileError::Vanished)?);
        let found = directory.check_file(&name)?;
        if found.is_some_and(|found| found.bytes == blob.size) {
            continue;
        }
        if let Some(bytes) = records.read_blob(&blob.chain, &blob.hash) {
            directory.remove_abandoned(records.now())?;
            let mut file = FileReplacement::begin(directory, &name)?;
            file.write(&bytes)?;
            file.commit()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_name_blobs_by_their_hash_alone() {
        let hash = "0a".repeat(32);
        let block = |hash: &str, media: &str| {
            json!({"type": "image", "blob": hash, "chain": "c",
            "media": media, "size": 9})
        };
        let lines = [
            json!({"type": "message", "images": [block(&hash, "image/jpeg")]}),
            json!({"type": "tool_result", "blocks": [block(&hash, "x/y"), block("../x", "x/y")]}),
            json!({"type": "note", "body": [block(&hash, "image/png")]}),
        ];
        let lines = lines.map(|line| format!("{line}\n")).concat();
        let names: Vec<_> = named_blobs(&lines)
            .iter()
            .map(|blob| blob_file_name(&blob.hash, &blob.media))
            .collect();
        assert_eq!(names, [format!("{hash}.jpg"), format!("{hash}.bin")]);
    }
}
