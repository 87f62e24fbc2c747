//! Images of a request: messages name them, and the driver puts their bytes beside the messages.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Most bytes of the images of one request, as Base64: an adapter's body has room for the texts
/// beside them. The newest images are sent, older ones are named.
pub const REQUEST_IMAGES_BYTES_MAX: u64 = 20 << 20;

/// Most tokens that one image is believed to come to, and a hold of the operator's ceilings is made
/// for: what the component cuts usage to is twice that.
pub const IMAGE_TOKENS_MAX: u64 = 13_200;

/// An image as a request has it.
#[derive(Clone, PartialEq, Eq)]
pub enum RequestImage {
    /// The image is sent.
    Sent {
        /// Its media type, by its bytes.
        media: &'static str,
        /// Its bytes as Base64.
        base64: Arc<str>,
    },
    /// A text is sent in its place, which says why.
    LeftOut(String),
}

impl fmt::Debug for RequestImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent { media, base64 } => write!(f, "Sent({media}, {} bytes)", base64.len()),
            Self::LeftOut(text) => write!(f, "LeftOut({text:?})"),
        }
    }
}

/// The images of a request, by the SHA-256 of their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestImages {
    images: BTreeMap<String, RequestImage>,
    /// The number of the oldest places of an image that is sent at newer ones alone, and the text
    /// there.
    older: BTreeMap<String, (u64, RequestImage)>,
    count: u64,
    bytes: u64,
}

impl RequestImages {
    /// Makes the images of a request, whose messages name them in this order.
    pub fn new<'a>(
        images: BTreeMap<String, RequestImage>,
        named: impl Iterator<Item = &'a str>,
    ) -> Self {
        let (mut count, mut bytes) = (0, 0);
        for name in named {
            if let Some(RequestImage::Sent { base64, .. }) = images.get(name) {
                count += 1;
                bytes += base64.len() as u64;
            }
        }
        Self {
            images,
            older: BTreeMap::new(),
            count,
            bytes,
        }
    }

    /// Leaves an image that is sent out at its oldest places: a text stands there.
    #[must_use]
    pub fn leave_out_older(mut self, hash: &str, places: u64, text: String) -> Self {
        if let Some(RequestImage::Sent { base64, .. }) = self.images.get(hash) {
            self.count -= places;
            self.bytes -= places * base64.len() as u64;
            let left_out = RequestImage::LeftOut(text);
            self.older.insert(hash.to_owned(), (places, left_out));
        }
        self
    }

    /// Returns the image of this name, as the newest message that names it has it.
    pub fn get(&self, hash: &str) -> Option<&RequestImage> {
        self.images.get(hash)
    }

    /// Returns the image of this name at one of the places that name it, counted from 0, the
    /// oldest.
    pub fn get_place(&self, hash: &str, place: u64) -> Option<&RequestImage> {
        match self.older.get(hash) {
            Some((older, left_out)) if place < *older => Some(left_out),
            _ => self.get(hash),
        }
    }

    /// Number of images that are sent.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the images that are sent, as Base64.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
