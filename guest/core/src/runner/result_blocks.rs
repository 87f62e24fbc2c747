//! The content of a tool's result: a JSON list of blocks, of which this version takes texts.

use crate::error::Error;
use crate::json::{self, JsonValue};

/// Reads the content of the result at `place` in a round; the texts of several blocks are joined by
/// a line break.
///
/// # Errors
/// `invalid`, if it is no list of text blocks. Images and blobs are refused by name.
pub fn parse_result_content(place: usize, text: &str) -> Result<String, Error> {
    let field = format!("outcomes[{place}].content");
    let mended = json::mend_surrogates(text);
    let problem = "is no JSON list of blocks such as [{\"type\": \"text\", \"text\": \"...\"}]";
    let blocks = match json::parse(&mended) {
        Ok(JsonValue::Array(blocks)) => blocks,
        _ => return Err(Error::invalid(field, text, problem)),
    };
    let mut texts = Vec::with_capacity(blocks.len());
    for (number, block) in blocks.iter().enumerate() {
        let kind = block.get("type").and_then(JsonValue::as_str);
        let said = block.get("text").and_then(JsonValue::as_str);
        let field = format!("{field}[{number}]");
        match (kind, said) {
            (Some("text"), Some(said)) => texts.push(said),
            (Some(kind @ ("image" | "blob")), _) => {
                let problem = "is not taken by this version yet: give a text that says where it is";
                return Err(Error::invalid(format!("{field}.type"), kind, problem));
            }
            (Some("text"), None) => {
                return Err(Error::invalid(
                    format!("{field}.text"),
                    "",
                    "must be a text",
                ));
            }
            (kind, _) => {
                let (kind, problem) = (kind.unwrap_or_default(), "is not a block of a result");
                let known = ["text", "image", "blob"];
                return Err(Error::invalid_name(
                    format!("{field}.type"),
                    kind,
                    problem,
                    &known,
                ));
            }
        }
    }
    Ok(texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_and_other_blocks_are_refused_by_name() {
        for (text, expected) in [
            ("[]", ""),
            (r#"[{"type":"text","text":"a"}]"#, "a"),
            (
                r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#,
                "a\nb",
            ),
            (r#"[{"type":"text","text":"\ude42"}]"#, "\u{fffd}"),
        ] {
            assert_eq!(parse_result_content(0, text).unwrap(), expected, "{text}");
        }
        for (text, expected) in [
            ("plain", "outcomes[2].content"),
            ("", "outcomes[2].content"),
            (r#""text""#, "outcomes[2].content"),
            (r#"{"type":"text","text":"a"}"#, "outcomes[2].content"),
            (r#"[{"type":"image"}]"#, "outcomes[2].content[0].type"),
            (
                r#"[{"type":"text","text":"a"},{"type":"blob"}]"#,
                "outcomes[2].content[1].type",
            ),
            (r#"[{"type":"video"}]"#, "outcomes[2].content[0].type"),
            (r#"["a"]"#, "outcomes[2].content[0].type"),
            (r#"[{"type":"text"}]"#, "outcomes[2].content[0].text"),
        ] {
            match parse_result_content(2, text) {
                Err(Error::Invalid { field, .. }) => assert_eq!(field, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
