//! Images, recognized by their bytes. The name of a file and the header of a response are not
//! trusted: a provider refuses a conversation with bytes that are not of the type that they are
//! said to be, every time.

/// Most bytes of an image: 5 MB as Base64, the most that Anthropic takes of one. OpenAI takes more.
pub const IMAGE_BYTES_MAX: usize = 3_750_000;

/// Returns the media type of an image that models take, by its first bytes.
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    let is = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    match () {
        () if is(0, b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        () if is(0, b"\xff\xd8\xff") => Some("image/jpeg"),
        () if is(0, b"GIF87a") || is(0, b"GIF89a") => Some("image/gif"),
        () if is(0, b"RIFF") && is(8, b"WEBP") => Some("image/webp"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_their_first_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0....", Some("image/jpeg")),
            (b"GIF87a..", Some("image/gif")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\x10\0\0\0WAVEfmt ", None),
            (b"\x89PNG\n\x1a\n", None),
            (b"<svg xmlns=", None),
            (b"II*\0", None),
            (b"BM", None),
            (b"", None),
        ] {
            assert_eq!(image_type(bytes), expected, "{bytes:?}");
        }
    }
}
