//! The blobs of a tool's result: stored before the result is submitted, which then names them.

use crate::blobs::{BlobError, BlobName, image_type, size_text};
use crate::tenant::Tenant;
use crate::tools::ToolResult;
use crate::wit;
use serde_json::{Value, json};

/// Stores the images of a result, and its text where the model is shown only a part. Returns the
/// result and the blocks that name what was stored. What is not stored is said in the text: the
/// tool has run, so its result is never lost for it.
pub(super) async fn store_result_blobs(
    tenant: &Tenant,
    call: &wit::ToolCall,
    mut result: ToolResult,
) -> (ToolResult, Vec<Value>) {
    let mut blocks = Vec::new();
    for image in std::mem::take(&mut result.images) {
        let label = label_image(&image);
        if !call.images {
            let note = format!("{label}: the model of this thread takes no images");
            fail_with(&mut result, &note);
            continue;
        }
        match tenant.store_image(&call.thread, image).await {
            Ok(name) => blocks.push(name.image_block()),
            Err(error) => {
                let note = format!("{label} is not shown: {}", text_of(&error));
                fail_with(&mut result, &note);
            }
        }
    }
    if let Some(whole) = result.whole.take() {
        let bytes = whole.len();
        let stored = tenant.store_blob(&call.thread, whole.into_bytes(), "text/plain");
        let note = match stored.await {
            Ok(name) => {
                blocks.push(name.blob_block());
                format!("[all {bytes} bytes are kept as the blob {}]", name.short())
            }
            Err(error) => format!("[the rest is not kept: {}]", text_of(&error)),
        };
        add_line(&mut result.content, &note);
    }
    (result, blocks)
}

/// Returns the content of an outcome: a text, and the blocks that name blobs.
pub(super) fn result_content(text: &str, blocks: Vec<Value>) -> String {
    if blocks.is_empty() {
        return wit::text_content(text);
    }
    let text = json!({"type": "text", "text": text});
    Value::Array([vec![text], blocks].concat()).to_string()
}

fn label_image(bytes: &[u8]) -> String {
    match image_type(bytes) {
        Some(media) => BlobName::of(bytes, media).image_label(None),
        None => format!("[image, {}]", size_text(bytes.len() as u64)),
    }
}

fn fail_with(result: &mut ToolResult, note: &str) {
    result.failed = true;
    add_line(&mut result.content, note);
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

/// Returns the words for a model about an error: none of the store's own.
fn text_of(error: &BlobError) -> String {
    match error {
        BlobError::Storage(crate::storage::StorageError::QuotaExceeded { .. }) => {
            "the store is full".to_owned()
        }
        BlobError::Storage(_) | BlobError::Call(_) => "the store gave no answer".to_owned(),
        error => error.to_string(),
    }
}
