//! The blobs that events name, and how they are shown where only texts are.

use super::stored_blob::{BlobKind, MessageBlock, StoredBlob};
use super::{Event, Message, ToolResult};
use std::borrow::Cow;

impl Event {
    /// Returns the blobs that the event names.
    pub fn blobs_mut(&mut self) -> Vec<&mut StoredBlob> {
        match self {
            Self::Message(message) => message.images_mut().collect(),
            Self::ToolResult(result) => result.blocks.iter_mut().collect(),
            _ => Vec::new(),
        }
    }
}

impl Message {
    /// Returns its images.
    pub fn images(&self) -> impl Iterator<Item = &StoredBlob> {
        self.content.iter().filter_map(|block| match block {
            MessageBlock::Image(image) => Some(image),
            MessageBlock::Text(_) => None,
        })
    }

    fn images_mut(&mut self) -> impl Iterator<Item = &mut StoredBlob> {
        self.content.iter_mut().filter_map(|block| match block {
            MessageBlock::Image(image) => Some(image),
            MessageBlock::Text(_) => None,
        })
    }
}

impl ToolResult {
    /// Returns its images, which models are sent.
    pub fn images(&self) -> impl Iterator<Item = &StoredBlob> {
        self.blocks
            .iter()
            .filter(|blob| blob.kind == BlobKind::Image)
    }

    /// Returns the text, with a line that names each blob before it.
    pub fn show_with_blobs(&self) -> Cow<'_, str> {
        if self.blocks.is_empty() {
            return self.text.as_str().into();
        }
        let labels = self.blocks.iter().map(StoredBlob::label);
        let lines: Vec<_> = labels.chain([self.text.clone()]).collect();
        lines.join("\n").into()
    }
}
