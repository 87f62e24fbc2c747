//! The content of a tool's result: a JSON list of blocks, which are texts, images and blobs.

use crate::error::Error;
use crate::history::{BLOBS_MAX, StoredBlob};
use crate::json::{self, JsonValue};

/// The content of a result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultContent {
    /// The texts of its blocks, joined by a line break.
    pub text: String,
    /// Its images, and blobs of which the text shows a part.
    pub blocks: Vec<StoredBlob>,
}

/// Reads the content of the result at `place` in a round; the texts of several blocks are joined by
/// a line break.
///
/// # Errors
/// `invalid`, if it is no list of blocks.
pub fn parse_result_content(place: usize, text: &str) -> Result<ResultContent, Error> {
    let field = format!("outcomes[{place}].content");
    let mended = json::mend_surrogates(text);
    let problem = "is no JSON list of blocks such as [{\"type\": \"text\", \"text\": \"...\"}]";
    let given = match json::parse(&mended) {
        Ok(JsonValue::Array(given)) => given,
        _ => return Err(Error::invalid(field, text, problem)),
    };
    let mut texts = Vec::with_capacity(given.len());
    let mut blocks = Vec::new();
    for (number, block) in given.iter().enumerate() {
        let kind = block.get("type").and_then(JsonValue::as_str);
        let said = block.get("text").and_then(JsonValue::as_str);
        let at = format!("{field}[{number}]");
        match (kind, said) {
            (Some("text"), Some(said)) => texts.push(said),
            (Some("text"), None) => {
                return Err(Error::invalid(format!("{at}.text"), "", "must be a text"));
            }
            (Some("image" | "blob"), _) if blocks.len() == BLOBS_MAX => {
                let problem = format!("is one too many: a result names at most {BLOBS_MAX}");
                return Err(Error::invalid(at, "", problem));
            }
            (Some("image" | "blob"), _) => blocks.push(StoredBlob::parse(&at, block)?),
            (kind, _) => {
                let (kind, problem) = (kind.unwrap_or_default(), "is not a block of a result");
                let known = ["text", "image", "blob"];
                let field = format!("{at}.type");
                return Err(Error::invalid_name(field, kind, problem, &known));
            }
        }
    }
    let text = texts.join("\n");
    Ok(ResultContent { text, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn image() -> String {
        let hash = "ab".repeat(32);
        format!(r#"{{"type":"image","blob":"{hash}","media":"image/png","size":7}}"#)
    }

    #[test]
    fn texts_images_and_blobs_are_taken() {
        for (text, expected) in [
            ("[]", ""),
            (r#"[{"type":"text","text":"a"}]"#, "a"),
            (
                r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#,
                "a\nb",
            ),
            (r#"[{"type":"text","text":"\ude42"}]"#, "\u{fffd}"),
        ] {
            let content = parse_result_content(0, text).unwrap();
            assert_eq!((content.text.as_str(), content.blocks.len()), (expected, 0));
        }
        let image = image();
        let blob = image.replace("\"image\"", "\"blob\"");
        let both = format!(r#"[{image},{{"type":"text","text":"a"}},{blob}]"#);
        let content = parse_result_content(0, &both).unwrap();
        assert_eq!(content.text, "a");
        let written: Vec<_> = content.blocks.iter().map(json::to_text).collect();
        assert_eq!(written, [image, blob]);
    }

    #[test]
    fn other_blocks_are_refused_by_their_place() {
        let many = vec![image(); BLOBS_MAX + 1].join(",");
        let many = format!("[{many}]");
        let data = r#"[{"type":"image","media":"image/png","data":"aGk="}]"#;
        for (text, expected) in [
            ("plain", "outcomes[2].content"),
            ("", "outcomes[2].content"),
            (r#""text""#, "outcomes[2].content"),
            (r#"{"type":"text","text":"a"}"#, "outcomes[2].content"),
            (r#"[{"type":"image"}]"#, "outcomes[2].content[0]"),
            (data, "outcomes[2].content[0].data"),
            (
                r#"[{"type":"text","text":"a"},{"type":"blob"}]"#,
                "outcomes[2].content[1]",
            ),
            (&many, "outcomes[2].content[16]"),
            (r#"[{"type":"video"}]"#, "outcomes[2].content[0].type"),
            (r#"["a"]"#, "outcomes[2].content[0].type"),
            (r#"[{"type":"text"}]"#, "outcomes[2].content[0].text"),
        ] {
            match parse_result_content(2, text).map_err(Error::into_kind) {
                Err(ErrorKind::Invalid { field, .. }) => assert_eq!(field, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
