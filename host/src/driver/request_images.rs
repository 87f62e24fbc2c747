//! The images of a conversation: read from the store once, their hash compared, and put beside the
//! messages of each request.

use crate::blobs::{BlobName, image_type};
use crate::models::{REQUEST_IMAGES_BYTES_MAX, RequestImage, RequestImages};
use crate::tenant::Tenant;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeMap;

/// An image that a message names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedImage {
    chain: String,
    name: BlobName,
}

/// The images that the messages of a conversation name, in order, and the bytes of those that were
/// read.
#[derive(Debug, Default)]
pub(super) struct ConversationImages {
    /// Number of messages that were looked through.
    seen: usize,
    named: Vec<NamedImage>,
    /// Media type and Base64 of each image, or why it could not be read, by hash.
    read: BTreeMap<String, RequestImage>,
}

impl ConversationImages {
    /// Forgets the messages: others replace them.
    pub(super) fn restart(&mut self) {
        (self.seen, self.named) = (0, Vec::new());
    }

    /// Returns how many bytes of images are held.
    pub(super) fn bytes(&self) -> usize {
        let read = self.read.values().map(|image| match image {
            RequestImage::Sent { base64, .. } => base64.len(),
            RequestImage::LeftOut(text) => text.len(),
        });
        read.sum()
    }

    /// Returns the images for a request with these messages. A model that takes none is sent texts.
    pub(super) async fn load(
        &mut self,
        tenant: &Tenant,
        messages: &[String],
        taken: bool,
    ) -> RequestImages {
        for json in messages.iter().skip(self.seen) {
            // A text that holds these words is parsed in vain.
            let may_name = json.contains("\"image\"");
            if let Some(Ok(parsed)) = may_name.then(|| serde_json::from_str(json)) {
                collect_images(&parsed, &mut self.named);
            }
        }
        self.seen = messages.len();
        if self.named.is_empty() {
            return RequestImages::default();
        }
        let mut images = BTreeMap::new();
        let mut room = REQUEST_IMAGES_BYTES_MAX;
        for at in (0..self.named.len()).rev() {
            let image = self.named[at].clone();
            let why = if !taken {
                Some("this model takes no images")
            } else {
                // Each place of an image takes its bytes.
                let needed = image.name.size.div_ceil(3) * 4;
                let fits = needed <= room;
                room = if fits { room - needed } else { 0 };
                (!fits).then_some("newer images leave no room for it")
            };
            let hash = image.name.hash.clone();
            let chosen = match why {
                Some(why) => RequestImage::LeftOut(image.name.image_label(Some(why))),
                None => self.read_image(tenant, image).await,
            };
            images.entry(hash).or_insert(chosen);
        }
        let named = self.named.iter().map(|image| image.name.hash.as_str());
        RequestImages::new(images, named)
    }

    async fn read_image(&mut self, tenant: &Tenant, image: NamedImage) -> RequestImage {
        let NamedImage { chain, name } = image;
        if let Some(read) = self.read.get(&name.hash) {
            return read.clone();
        }
        let (bytes, why) = match tenant.read_blob(&chain, &name.hash).await {
            Ok(bytes) => (bytes, None),
            Err(error) => {
                tracing::warn!(%error, "an image of a conversation cannot be read");
                (Vec::new(), Some("it cannot be read from the store"))
            }
        };
        let read = match (image_type(&bytes), why) {
            (Some(media), None) => RequestImage::Sent {
                media,
                base64: STANDARD.encode(&bytes).into(),
            },
            (_, why) => {
                let why = why.unwrap_or("its bytes are no image");
                RequestImage::LeftOut(name.image_label(Some(why)))
            }
        };
        // A store that cannot be reached now may be reached later.
        if let RequestImage::Sent { .. } = read {
            self.read.insert(name.hash, read.clone());
        }
        read
    }
}

/// Adds the images that a message names: blocks of its content, and those of results.
fn collect_images(message: &Value, named: &mut Vec<NamedImage>) {
    let blocks = message["content"].as_array();
    for block in blocks.into_iter().flatten() {
        named.extend(named_image(block));
        let images = block["images"].as_array();
        named.extend(images.into_iter().flatten().filter_map(named_image));
    }
}

fn named_image(block: &Value) -> Option<NamedImage> {
    let text = |field: &str| block[field].as_str().map(str::to_owned);
    (block["type"] == "image").then_some(())?;
    Some(NamedImage {
        chain: text("chain")?,
        name: BlobName {
            hash: text("blob")?,
            media: text("media")?,
            size: block["size"].as_u64()?,
        },
    })
}
