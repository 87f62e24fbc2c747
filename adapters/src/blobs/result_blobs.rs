//! The blobs of a tool's result: stored before the result is handed to the component, which then
//! names them.

use super::thread_blobs::{BlobThreads, ThreadBlobs};
use super::{BlobError, BlobName, size_text};
use crate::image_type::image_type;
use serde_json::{Value, json};
use std::error::Error;
use threadkeep_storage::StorageError;

/// A tool's result with bytes that are not stored yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnstoredResult {
    /// The text that the model is shown.
    pub text: String,
    /// True if the tool failed.
    pub failed: bool,
    /// The images that the tool has answered.
    pub images: Vec<Vec<u8>>,
    /// The whole text where `text` is cut.
    pub whole: Option<String>,
}

impl UnstoredResult {
    /// Returns true if the result has bytes for the store.
    pub fn has_blobs(&self) -> bool {
        !self.images.is_empty() || self.whole.is_some()
    }
}

/// A tool's result as the component takes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredResult {
    /// The text that the model is shown.
    pub text: String,
    /// True if the tool failed, or an image of it is not shown.
    pub failed: bool,
    /// The blocks that name what was stored.
    pub blocks: Vec<Value>,
}

impl StoredResult {
    /// Returns the content of the outcome: a text, and the blocks that name blobs.
    pub fn content(&self) -> String {
        let text = json!({"type": "text", "text": self.text});
        Value::Array([&[text][..], &self.blocks[..]].concat()).to_string()
    }

    /// Returns the result of which nothing could be stored.
    pub fn lost(result: &UnstoredResult) -> Self {
        let mut lost = Self {
            text: result.text.clone(),
            failed: result.failed,
            blocks: Vec::new(),
        };
        lost.fail_with("[its images and its rest are not kept: the store gave no answer]");
        lost
    }

    /// Adds a line to the text, and marks the result as failed.
    fn fail_with(&mut self, note: &str) {
        self.failed = true;
        self.add_line(note);
    }

    fn add_line(&mut self, line: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }
}

impl From<UnstoredResult> for StoredResult {
    /// Leaves the bytes out.
    fn from(result: UnstoredResult) -> Self {
        Self {
            text: result.text,
            failed: result.failed,
            blocks: Vec::new(),
        }
    }
}

impl<T: BlobThreads> ThreadBlobs<'_, T> {
    /// Stores the images of a result, and its text where the model is shown only a part. What is
    /// not stored is said in the text: the tool has run, so its result is never lost for it.
    /// `takes_images` is false if the model of the thread takes none.
    pub fn store_result(
        &self,
        thread: &str,
        takes_images: bool,
        mut result: UnstoredResult,
    ) -> StoredResult {
        let images = std::mem::take(&mut result.images);
        let whole = result.whole.take();
        let mut stored = StoredResult::from(result);
        for image in images {
            let label = label_image(&image);
            if !takes_images {
                let note = format!("{label}: the model of this thread takes no images");
                stored.fail_with(&note);
                continue;
            }
            match self.store_image(thread, &image) {
                Ok(name) => stored.blocks.push(name.image_block()),
                Err(error) => {
                    let note = format!("{label} is not shown: {}", text_of(&error));
                    stored.fail_with(&note);
                }
            }
        }
        if let Some(whole) = whole {
            let bytes = whole.len();
            let note = match self.store_blob(thread, whole.as_bytes(), "text/plain") {
                Ok(name) => {
                    stored.blocks.push(name.blob_block());
                    format!("[all {bytes} bytes are kept as the blob {}]", name.short())
                }
                Err(error) => format!("[the rest is not kept: {}]", text_of(&error)),
            };
            stored.add_line(&note);
        }
        stored
    }
}

fn label_image(bytes: &[u8]) -> String {
    match image_type(bytes) {
        Some(media) => BlobName::of(bytes, media).image_label(None),
        None => format!("[image, {}]", size_text(bytes.len() as u64)),
    }
}

/// Returns the words for a model about an error: none of the store's own.
fn text_of<C: Error + 'static>(error: &BlobError<C>) -> String {
    match error {
        BlobError::Storage(StorageError::QuotaExceeded { .. }) => "the store is full".to_owned(),
        BlobError::Storage(_) | BlobError::Call(_) => "the store gave no answer".to_owned(),
        error => error.to_string(),
    }
}
