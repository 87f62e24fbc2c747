//! The images of a conversation: which of those that its messages name a request carries, read from
//! the store once.

use super::{REQUEST_IMAGES_BYTES_MAX, RequestImage, RequestImages};
use crate::blobs::BlobName;
use crate::image_type::image_type;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeMap;

/// The reason why an image is not sent that is older than those that a request has room for.
const NO_ROOM: &str = "newer images leave no room for it";

/// An image that a message names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedImage {
    chain: String,
    name: BlobName,
}

/// The images that the messages of a conversation name, in order, and the bytes of those that the
/// last request carried.
#[derive(Debug, Default)]
pub struct ConversationImages {
    /// Number of messages that were looked through.
    seen: usize,
    named: Vec<NamedImage>,
    /// Images that were sent, by hash: most of them are sent again.
    sent: BTreeMap<String, RequestImage>,
}

impl ConversationImages {
    /// Forgets the messages: others replace them.
    pub fn restart(&mut self) {
        (self.seen, self.named) = (0, Vec::new());
    }

    /// Notes the images that messages name. Those that were looked through before are passed over.
    pub fn add_messages(&mut self, messages: &[String]) {
        for json in messages.iter().skip(self.seen) {
            // A text that holds these words is parsed in vain.
            let may_name = json.contains("\"image\"");
            if let Some(Ok(parsed)) = may_name.then(|| serde_json::from_str(json)) {
                collect_images(&parsed, &mut self.named);
            }
        }
        self.seen = messages.len();
    }

    /// Returns true if the messages name no image: nothing has to be read then.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Returns how many bytes of images are held.
    pub fn bytes(&self) -> usize {
        let sent = self.sent.values().map(|image| match image {
            RequestImage::Sent { base64, .. } => base64.len(),
            RequestImage::LeftOut(text) => text.len(),
        });
        sent.sum()
    }

    /// Returns the images of a request with these messages: the newest that it has room for. A
    /// model that takes none is sent texts. `read` reads a blob, by its chain and hash, and
    /// compares the hash; `None` if the store cannot give it.
    pub fn choose(
        &mut self,
        takes_images: bool,
        mut read: impl FnMut(&str, &str) -> Option<Vec<u8>>,
    ) -> RequestImages {
        let mut images: BTreeMap<String, RequestImage> = BTreeMap::new();
        let mut older: BTreeMap<&BlobName, u64> = BTreeMap::new();
        let mut room = REQUEST_IMAGES_BYTES_MAX;
        for NamedImage { chain, name } in self.named.iter().rev() {
            let why = if !takes_images {
                Some("this model takes no images")
            } else {
                // Each place of an image takes its bytes.
                let needed = name.size.div_ceil(3) * 4;
                let fits = needed <= room;
                room = if fits { room - needed } else { 0 };
                (!fits).then_some(NO_ROOM)
            };
            match (images.get(&name.hash), why) {
                (Some(RequestImage::Sent { .. }), Some(_)) => {
                    *older.entry(name).or_default() += 1;
                    continue;
                }
                (Some(_), _) => continue,
                (None, _) => {}
            }
            let chosen = match (why, self.sent.get(&name.hash)) {
                (Some(why), _) => RequestImage::LeftOut(name.image_label(Some(why))),
                (None, Some(sent)) => sent.clone(),
                (None, None) => encode_image(name, read(chain, &name.hash)),
            };
            images.insert(name.hash.clone(), chosen);
        }
        if takes_images {
            // One that cannot be read now may be read later.
            let sent = images.iter();
            let sent = sent.filter(|(_, image)| matches!(image, RequestImage::Sent { .. }));
            self.sent = sent
                .map(|(hash, image)| (hash.clone(), image.clone()))
                .collect();
        }
        let named = self.named.iter().map(|image| image.name.hash.as_str());
        let chosen = RequestImages::new(images, named);
        older.into_iter().fold(chosen, |chosen, (name, places)| {
            let label = name.image_label(Some(NO_ROOM));
            chosen.leave_out_older(&name.hash, places, label)
        })
    }
}

fn encode_image(name: &BlobName, bytes: Option<Vec<u8>>) -> RequestImage {
    let left_out = |why: &str| RequestImage::LeftOut(name.image_label(Some(why)));
    let Some(bytes) = bytes else {
        return left_out("it cannot be read from the store");
    };
    match image_type(&bytes) {
        Some(media) => RequestImage::Sent {
            media,
            base64: STANDARD.encode(&bytes).into(),
        },
        None => left_out("its bytes are no image"),
    }
}

/// Adds the images that a message names: blocks of its content, and those of results.
fn collect_images(message: &Value, named: &mut Vec<NamedImage>) {
    let blocks = message["content"].as_array();
    for block in blocks.into_iter().flatten() {
        named.extend(read_name(block));
        let images = block["images"].as_array();
        named.extend(images.into_iter().flatten().filter_map(read_name));
    }
}

fn read_name(block: &Value) -> Option<NamedImage> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A message that names an image of so many bytes, by a hash that is no hash.
    fn message(hash: &str, size: u64) -> String {
        let image = json!({"type": "image", "blob": hash, "chain": "c", "media": "image/png",
            "size": size});
        json!({"role": "user", "content": [image]}).to_string()
    }

    fn png() -> Option<Vec<u8>> {
        Some(b"\x89PNG\r\n\x1a\n".to_vec())
    }

    /// Returns `sent`, or the text that is sent in the place of the image.
    fn describe(images: &RequestImages, hash: &str) -> String {
        match images.get(hash) {
            Some(RequestImage::Sent { .. }) => "sent".to_owned(),
            Some(RequestImage::LeftOut(text)) => text.clone(),
            None => "none".to_owned(),
        }
    }

    #[test]
    fn images_are_found_in_messages_and_results() {
        let image = |hash: &str| {
            json!({"type": "image", "blob": hash, "chain": "c", "media":
            "image/png", "size": 8})
        };
        let result = json!({"type": "tool_result", "images": [image("b")]});
        let messages = [
            message("a", 8),
            json!({"role": "user", "content": [result]}).to_string(),
            json!({"role": "user", "content": "an \"image\""}).to_string(),
            json!({"role": "user", "content": [{"type": "image", "blob": "z"}]}).to_string(),
            "\"image\" and no JSON".to_owned(),
        ];
        let mut images = ConversationImages::default();
        images.add_messages(&messages);
        let chosen = images.choose(true, |chain, _| png().filter(|_| chain == "c"));
        for (hash, expected) in [("a", "sent"), ("b", "sent"), ("z", "none")] {
            assert_eq!(describe(&chosen, hash), expected, "{hash}");
        }
        assert_eq!(chosen.count(), 2);
    }

    #[test]
    fn the_newest_images_are_sent_and_others_say_why_not() {
        let half = REQUEST_IMAGES_BYTES_MAX / 8 * 3;
        let messages = ["old", "new", "newest"].map(|hash| message(hash, half));
        let mut images = ConversationImages::default();
        images.add_messages(&messages);
        let chosen = images.choose(true, |_, _| png());
        for (hash, expected) in [
            (
                "old",
                "[image png, 8 MB, old: newer images leave no room for it]",
            ),
            ("new", "sent"),
            ("newest", "sent"),
        ] {
            assert_eq!(describe(&chosen, hash), expected);
        }
        for (takes_images, bytes, expected) in [
            (false, png(), "this model takes no images"),
            (true, None, "it cannot be read from the store"),
            (true, Some(b"text".to_vec()), "its bytes are no image"),
        ] {
            let mut images = ConversationImages::default();
            images.add_messages(&messages[2..]);
            let chosen = images.choose(takes_images, |_, _| bytes.clone());
            let label = format!("[image png, 8 MB, newest: {expected}]");
            assert_eq!(describe(&chosen, "newest"), label);
            assert_eq!((chosen.count(), chosen.bytes()), (0, 0));
        }
    }

    /// Symptom: an image that was shown again and again was sent at each place, whatever room was
    /// left. Cause: the newest place decided for all. Fix: older ones are counted and left out.
    #[test]
    fn an_image_is_sent_at_its_newest_places_that_fit() {
        let half = REQUEST_IMAGES_BYTES_MAX / 8 * 3;
        let mut images = ConversationImages::default();
        let bytes: Vec<u8> = png().into_iter().flatten().chain(vec![0; 100]).collect();
        let messages = ["a", "b", "a", "a", "b"].map(|hash| message(hash, half));
        images.add_messages(&messages);
        let chosen = images.choose(true, |_, _| Some(bytes.clone()));
        let is_sent = |hash, place| {
            matches!(
                chosen.get_place(hash, place),
                Some(RequestImage::Sent { .. })
            )
        };
        assert_eq!(
            [0, 1, 2].map(|place| is_sent("a", place)),
            [false, false, true]
        );
        assert_eq!([0, 1].map(|place| is_sent("b", place)), [false, true]);
        let base64 = 4 * bytes.len().div_ceil(3) as u64;
        assert_eq!((chosen.count(), chosen.bytes()), (2, 2 * base64));
        let text = "[image png, 8 MB, a: newer images leave no room for it]".to_owned();
        assert_eq!(chosen.get_place("a", 1), Some(&RequestImage::LeftOut(text)));
    }

    /// Symptom: a long run with many images kept the bytes of all that it had ever sent. An image
    /// that a request carries is read once, one that no request carries is not kept.
    #[test]
    fn only_what_was_sent_last_is_kept() {
        let most = REQUEST_IMAGES_BYTES_MAX / 4 * 3;
        let mut images = ConversationImages::default();
        let mut reads = Vec::new();
        let mut messages = Vec::new();
        for hash in ["a", "b", "b", "c"] {
            messages.push(message(hash, most));
            images.add_messages(&messages);
            images.choose(true, |_, hash| {
                reads.push(hash.to_owned());
                png()
            });
            assert_eq!(images.sent.keys().collect::<Vec<_>>(), [hash]);
        }
        assert_eq!(reads, ["a", "b", "c"]);
        images.choose(false, |_, _| {
            panic!("nothing is read for a model without images")
        });
        assert_eq!(images.sent.len(), 1);
        images.restart();
        assert!(images.is_empty());
    }
}
