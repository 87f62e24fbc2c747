//! Blocks that name a blob: images and large results, whose bytes the host stores beside the
//! history and puts into requests. The component never holds them.

use crate::error::Error;
use crate::json::{FromJson, JsonError, JsonValue, ObjectReader, ObjectWriter, ToJson};
use crate::json::{record, words};
use crate::{id, key};
use std::borrow::Cow;

/// Most bytes of one blob.
pub const BLOB_BYTES_MAX: u64 = 20 << 20;
/// Most blocks of one message or result that name blobs. Providers take a hundred images in one
/// request, so several messages of this many can stand in one.
pub const BLOBS_MAX: usize = 16;
/// Types of images that providers of both wires take.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Longest media type, in bytes.
const MEDIA_BYTES_MAX: usize = 100;
/// Length of a SHA-256 in hexadecimal digits.
const HASH_DIGITS: usize = 64;
/// Digits of the name that people and models are shown.
const SHOWN_DIGITS: usize = 12;

/// The place of a blob in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// An image, which a model that takes images is sent.
    Image,
    /// Any other bytes: no model is sent them.
    Blob,
}

words!(BlobKind { Image = "image", Blob = "blob" });

/// `{"type", "blob", "chain", "media", "size"}`: a block that names a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// Kind of the block.
    pub kind: BlobKind,
    /// SHA-256 of the bytes, in lower-case hexadecimal digits.
    pub hash: String,
    /// The chain under which the bytes are stored. `None` only until the block is an event: then it
    /// is the chain of the thread. Forks and other readers find the bytes by it.
    pub chain: Option<String>,
    /// Media type, such as `image/png`.
    pub media: String,
    /// Number of bytes.
    pub size: u64,
}

record!(StoredBlob { kind as "type", hash as "blob", chain or nothing, media, size });

/// The record of a blob, as the host writes it, without its media type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRecord {
    /// Number of bytes.
    pub size: u64,
    /// Number of lines in the log.
    pub parts: u64,
    /// Number of lines that are written so far.
    pub written: u64,
}

record!(read BlobRecord { size, parts, written });

impl StoredBlob {
    /// Reads the block at `place` as a caller gives it, without a chain. Unknown fields are
    /// refused.
    ///
    /// # Errors
    /// `invalid`, with the field that is wrong.
    pub fn parse(place: &str, block: &JsonValue<'_>) -> Result<Self, Error> {
        let at = |field: &str| format!("{place}.{field}");
        if block.get("data").is_some() {
            let problem = "is not taken here: the host stores the bytes first, and names them as \
                           `blob` (SHA-256), `media` and `size`";
            return Err(Error::invalid(at("data"), "", problem));
        }
        let read = |block: JsonValue<'_>| -> Result<Self, JsonError> {
            let mut reader = ObjectReader::new(block)?;
            let stored = Self {
                kind: reader.field("type")?,
                hash: reader.field("blob")?,
                chain: None,
                media: reader.field("media")?,
                size: reader.field("size")?,
            };
            reader.finish_strictly()?;
            Ok(stored)
        };
        let stored = read(block.clone()).map_err(|wrong| {
            let problem =
                format!("is no block {{\"type\", \"blob\", \"media\", \"size\"}}: {wrong}");
            Error::invalid(place, "", problem)
        })?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if stored.hash.len() != HASH_DIGITS || !stored.hash.bytes().all(digit) {
            let problem = "must be a SHA-256: 64 lower-case hexadecimal digits";
            return Err(Error::invalid(at("blob"), &stored.hash, problem));
        }
        stored.check_media(&at("media"))?;
        if !(1..=BLOB_BYTES_MAX).contains(&stored.size) {
            let problem = format!("must be 1 to {BLOB_BYTES_MAX} bytes");
            return Err(Error::invalid(
                at("size"),
                &stored.size.to_string(),
                problem,
            ));
        }
        Ok(stored)
    }

    fn check_media(&self, place: &str) -> Result<(), Error> {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let part = |part: &str| {
            let plain = |byte: u8| known(byte) || b".+-".contains(&byte);
            !part.is_empty() && part.bytes().all(plain)
        };
        let halves = self.media.split_once('/');
        let is_type = halves.is_some_and(|(left, right)| part(left) && part(right));
        if !is_type || self.media.len() > MEDIA_BYTES_MAX {
            let problem = "must be a media type in lower case, such as text/plain";
            return Err(Error::invalid(place, &self.media, problem));
        }
        if self.kind == BlobKind::Image && !IMAGE_TYPES.contains(&self.media.as_str()) {
            let problem = "is no type of an image that models take";
            return Err(Error::invalid_name(
                place,
                &self.media,
                problem,
                &IMAGE_TYPES,
            ));
        }
        Ok(())
    }

    /// Returns the key of the record, and the partition of the log, in the chain of this root.
    pub fn key(&self, root: &str) -> String {
        key::join(&[&id::key(root), &self.hash])
    }

    /// Compares the block with the record of the blob, if there is one.
    ///
    /// # Errors
    /// `invalid` at `place`.
    pub fn check_record(&self, place: &str, record: Option<&BlobRecord>) -> Result<(), Error> {
        let refuse = |field: &str, value: &str, problem: &str| {
            Err(Error::invalid(format!("{place}.{field}"), value, problem))
        };
        match record {
            None => refuse(
                "blob",
                &self.hash,
                "is no blob of this thread: the host writes it first",
            ),
            Some(record) if record.written < record.parts => refuse(
                "blob",
                &self.hash,
                "is a blob that is not wholly written: write it again",
            ),
            Some(record) if record.size != self.size => refuse(
                "size",
                &self.size.to_string(),
                "is not the size of this blob",
            ),
            Some(_) => Ok(()),
        }
    }

    /// Describes the block for people and models: `[image png, 34 KB, 0123456789ab]`.
    pub fn label(&self) -> String {
        let kind = self.kind.as_str();
        let media = self.media.strip_prefix("image/").unwrap_or(&self.media);
        let size = match self.size {
            bytes @ ..1_000 => format!("{bytes} bytes"),
            bytes @ 1_000..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
            bytes => format!("{} MB", bytes.div_ceil(1_000_000)),
        };
        let name = self.hash.get(..SHOWN_DIGITS).unwrap_or(&self.hash);
        format!("[{kind} {media}, {size}, {name}]")
    }
}

/// A block of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageBlock {
    /// A text.
    Text(String),
    /// An image.
    Image(StoredBlob),
}

impl ToJson for MessageBlock {
    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => ObjectWriter::new(out)
                .add("type", "text")
                .add("text", text)
                .finish(),
            Self::Image(image) => image.write(out),
        }
    }
}

impl FromJson for MessageBlock {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        if value.get("blob").is_some() {
            return Self::Image(StoredBlob::read(value, problem));
        }
        let mut reader = ObjectReader::begin(value);
        // Earlier programs may have kept another type beside a text: it was shown as a text.
        let _: String = reader.record_field("type");
        let text = reader.record_field("text");
        reader.end(&["type", "text"], problem);
        Self::Text(text)
    }

    fn placeholder() -> Self {
        Self::Text(String::new())
    }
}

impl MessageBlock {
    /// Returns the text, or what stands for the image where only texts are shown.
    pub fn show_as_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Image(image) => image.label().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::json;

    fn block(change: &[(&str, &str)]) -> String {
        let mut text = format!(
            r#"{{"type":"image","blob":"{}","media":"image/png","size":34000}}"#,
            "0123456789abcdef".repeat(4)
        );
        for (from, to) in change {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        text
    }

    fn parse(text: &str) -> Result<StoredBlob, Error> {
        StoredBlob::parse("at", &json::parse(text).expect("JSON"))
    }

    #[test]
    fn blocks_are_checked_to_the_last_field() {
        let stored = parse(&block(&[])).expect("it is whole");
        assert_eq!(stored.label(), "[image png, 34 KB, 0123456789ab]");
        assert_eq!(json::to_text(&stored), block(&[]));
        parse(&block(&[("image/png", "image/webp")])).expect("a type of images");
        let blob = block(&[("\"image\"", "\"blob\""), ("image/png", "text/plain")]);
        parse(&blob).expect("any bytes");
        for (change, field) in [
            (vec![("34000", "0")], "at.size"),
            (vec![("34000", "20971521")], "at.size"),
            (vec![("34000", "-1")], "at"),
            (vec![("image/png", "image/tiff")], "at.media"),
            (vec![("image/png", "png")], "at.media"),
            (
                vec![("\"image\"", "\"blob\""), ("image/png", "text/pl ain")],
                "at.media",
            ),
            (vec![("0123456789abcdef0", "0123456789ABCDEF0")], "at.blob"),
            (vec![("0123456789abcdef0", "0")], "at.blob"),
            (
                vec![("\"size\":34000", "\"size\":34000,\"data\":\"aGk=\"")],
                "at.data",
            ),
            (
                vec![("\"size\":34000", "\"size\":34000,\"chain\":\"c\"")],
                "at",
            ),
            (vec![("\"size\":34000", "\"url\":\"x\"")], "at"),
        ] {
            match parse(&block(&change)).map_err(Error::into_kind) {
                Err(ErrorKind::Invalid { field: found, .. }) => {
                    assert_eq!(found, field, "{change:?}")
                }
                other => panic!("{change:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn blocks_are_compared_with_the_record_of_the_blob() {
        let stored = parse(&block(&[])).expect("it is whole");
        let record = |size, written| BlobRecord {
            size,
            parts: 2,
            written,
        };
        let check = |found: Option<BlobRecord>| stored.check_record("at", found.as_ref());
        assert_eq!(check(Some(record(34_000, 2))), Ok(()));
        for (found, field) in [
            (None, "at.blob"),
            (Some(record(34_000, 1)), "at.blob"),
            (Some(record(34_001, 2)), "at.size"),
        ] {
            match check(found.clone()).map_err(Error::into_kind) {
                Err(ErrorKind::Invalid { field: wrong, .. }) => {
                    assert_eq!(wrong, field, "{found:?}")
                }
                other => panic!("{found:?}: {other:?}"),
            }
        }
    }
}
