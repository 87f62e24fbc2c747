//! `blobs.d`: the images and large results that a transcript names, as files beside it.
//!
//! A file is written before the lines that name it, so a transcript never names one that is not
//! there, unless the store itself cannot give it. It is named by the SHA-256 of its bytes and never
//! changes.

use super::{DocumentError, run_blocking};
use crate::blobs::BlobName;
use crate::tenant::Tenant;
use crate::thread_files::{DocumentDirectory, FileReplacement, MissingDirectory};
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
    extension: &'static str,
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
            extension: extension_of(block["media"].as_str().unwrap_or_default()),
            size: block["size"].as_u64()?,
        })
    }

    fn file_name(&self) -> String {
        format!("{}.{}", self.hash, self.extension)
    }
}

/// Returns the name of the file of a blob.
pub fn blob_file_name(blob: &BlobName) -> String {
    format!("{}.{}", blob.hash, extension_of(&blob.media))
}

fn extension_of(media: &str) -> &'static str {
    match media {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "text/plain" => "txt",
        _ => "bin",
    }
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
pub(super) async fn write_blob_files(
    tenant: &Tenant,
    place: &Arc<DocumentDirectory>,
    lines: &str,
) -> Result<(), DocumentError> {
    for blob in named_blobs(lines) {
        let (there, name) = (Arc::clone(place), blob.file_name());
        let directory = run_blocking(move || {
            let directory = there.open_inner(BLOBS_DIR, MissingDirectory::Make)?;
            let directory = directory.ok_or(DocumentError::Abandoned)?;
            let found = directory.check_file(&name)?;
            let is_there = found.is_some_and(|found| found.bytes == blob.size);
            Ok((!is_there).then_some(directory))
        });
        let Some(directory) = directory.await? else {
            continue;
        };
        let bytes = match tenant.read_blob(&blob.chain, &blob.hash).await {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "a blob that a transcript names cannot be read");
                continue;
            }
        };
        let name = blob.file_name();
        run_blocking(move || {
            let mut file = FileReplacement::begin(Arc::new(directory), &name)?;
            file.write(&bytes)?;
            Ok(file.commit()?)
        })
        .await?;
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
            .map(NamedBlob::file_name)
            .collect();
        assert_eq!(names, [format!("{hash}.jpg"), format!("{hash}.bin")]);
    }
}
