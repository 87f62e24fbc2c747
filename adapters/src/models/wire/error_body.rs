//! Error bodies and error events, parsed in any of the shapes that servers use.

use super::classify::ProviderError;
use serde_json::Value;

/// Most characters of a sentence that are kept; less is shown.
const SENTENCE_CHARS_MAX: usize = 2_000;
/// Most levels of a body that are searched for a sentence.
const DEPTH_MAX: usize = 6;

/// Keys that hold a sentence, or an object or list that contains one, in the order of search.
const SENTENCE_KEYS: [&str; 9] = [
    "message",
    "msg",
    "detail",
    "error",
    "errors",
    "error_description",
    "description",
    "reason",
    "title",
];

/// Parses the body of a refusal: `{"error": {"message", "type", "code", "param"}}`, `{"error":
/// "...", "code"}`, `{"object": "error", "message"}`, `{"message": {"detail": [...]}}`, `{"detail":
/// [{"loc", "msg"}]}`, `{"errors": [...]}`, or one of them in a list. `None` if it reports no
/// error.
pub(in crate::models) fn parse_body(body: &Value) -> Option<ProviderError> {
    match body {
        Value::Array(list) => parse_body(list.first()?),
        Value::Object(fields) => {
            let is_said = |key: &&str| fields.get(*key).is_some_and(|value| !is_blank(value));
            let key = SENTENCE_KEYS.iter().find(|key| is_said(key));
            let flat = body["object"] == "error" || body["type"] == "error";
            if key.is_none() && !flat {
                return None;
            }
            Some(parse_error(match fields.get("error") {
                Some(error @ Value::Object(_)) => error,
                _ => body,
            }))
        }
        _ => None,
    }
}

/// Parses an error in an event of a stream; `reply` is the field that every part of a reply has.
/// `None` for a part of the reply.
pub(in crate::models) fn parse_stream_error(event: &Value, reply: &str) -> Option<ProviderError> {
    let is_there = |key: &str| event.get(key).is_some_and(|value| !is_blank(value));
    let named = is_there("error");
    let flat = event["object"] == "error" || event["type"] == "error";
    let bare = event.get(reply).is_none()
        && event.get("type").is_none()
        && ["message", "detail"].into_iter().any(is_there);
    (named || flat || bare).then(|| parse_body(event).unwrap_or_default())
}

/// Returns true for a value without content: some gateways send the error field in every event.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Parses a body that is not JSON: its text, or the title of an HTML page.
pub(in crate::models) fn parse_text(text: &str) -> ProviderError {
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title>").map(|at| at + "<title>".len());
    let sentence = match (title, lower.find("</title>")) {
        (Some(begin), Some(end)) if begin <= end => text.get(begin..end).unwrap_or_default(),
        _ if text.trim_start().starts_with(['<', '{', '[']) => "",
        _ => text,
    };
    ProviderError {
        message: truncate_sentence(&sentence.split_whitespace().collect::<Vec<_>>().join(" ")),
        ..ProviderError::default()
    }
}

fn parse_error(error: &Value) -> ProviderError {
    let word = |name: &str| match error.get(name) {
        Some(Value::String(word)) => truncate_sentence(word),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let code = word("code");
    ProviderError {
        // Google puts its word beside a number.
        code: if code.is_empty() {
            word("status")
        } else {
            code
        },
        // The bare word `error` says nothing.
        r#type: Some(word("type"))
            .filter(|word| word != "error")
            .unwrap_or_default(),
        param: word("param"),
        message: truncate_sentence(&sentence(error, DEPTH_MAX)),
    }
}

/// Returns the sentence in a value: the text itself, or that of its keys or list items. The
/// location that a validator names is put in front.
fn sentence(value: &Value, depth: usize) -> String {
    let Some(depth) = depth.checked_sub(1) else {
        return String::new();
    };
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let sentences = list.iter().take(5).map(|value| sentence(value, depth));
            sentences
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; ")
        }
        Value::Object(fields) => {
            let said = SENTENCE_KEYS.iter().filter_map(|key| fields.get(*key));
            let mut said = said.map(|value| sentence(value, depth));
            let said = said.find(|text| !text.is_empty()).unwrap_or_default();
            match fields.get("loc").and_then(Value::as_array) {
                Some(place) => {
                    let place = place.iter().map(|step| match step {
                        Value::String(step) => step.clone(),
                        step => step.to_string(),
                    });
                    format!("{}: {said}", place.collect::<Vec<_>>().join("."))
                }
                None => said,
            }
        }
        _ => String::new(),
    }
}

fn truncate_sentence(text: &str) -> String {
    text.chars().take(SENTENCE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider_error(code: &str, r#type: &str, message: &str) -> ProviderError {
        ProviderError {
            code: code.into(),
            r#type: r#type.into(),
            message: message.into(),
            param: String::new(),
        }
    }

    #[test]
    fn error_bodies_in_every_shape() {
        for (body, want) in [
            (
                r#"{"error":{"message":"m","type":"t","code":"c"}}"#,
                Some(provider_error("c", "t", "m")),
            ),
            (
                r#"{"error":{"message":"m","code":429}}"#,
                Some(provider_error("429", "", "m")),
            ),
            (r#"{"error":"m"}"#, Some(provider_error("", "", "m"))),
            (
                r#"{"error":"m","code":"c"}"#,
                Some(provider_error("c", "", "m")),
            ),
            (
                r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#,
                Some(provider_error("400", "", "m")),
            ),
            (
                r#"{"object":"error","message":"m","type":"t","code":400}"#,
                Some(provider_error("400", "t", "m")),
            ),
            (
                r#"{"type":"error","error":{"type":"t","message":"m"}}"#,
                Some(provider_error("", "t", "m")),
            ),
            (
                concat!(
                    r#"{"object":"error","message":{"detail":[{"loc":["body","x"],"msg":"m"}]},"#,
                    r#""type":"t"}"#
                ),
                Some(provider_error("", "t", "body.x: m")),
            ),
            (
                r#"{"error":{"message":{"detail":"m"}}}"#,
                Some(provider_error("", "", "m")),
            ),
            (r#"{"detail":"m"}"#, Some(provider_error("", "", "m"))),
            (
                r#"{"detail":[{"loc":["body",0],"msg":"a"},{"msg":"b"}]}"#,
                Some(provider_error("", "", "body.0: a; b")),
            ),
            (r#"{"message":"m"}"#, Some(provider_error("", "", "m"))),
            (
                r#"{"errors":[{"message":"m"}]}"#,
                Some(provider_error("", "", "m")),
            ),
            (r#"{"error":null,"choices":[]}"#, None),
            (r#"{"choices":[]}"#, None),
            ("[]", None),
            ("7", None),
        ] {
            assert_eq!(
                parse_body(&serde_json::from_str(body).unwrap()),
                want,
                "{body}"
            );
        }
        let deep = format!("{}\"m\"{}", "[".repeat(100), "]".repeat(100));
        let deep: Value = serde_json::from_str(&format!("{{\"error\":{deep}}}")).unwrap();
        assert_eq!(parse_body(&deep), Some(provider_error("", "", "")));
    }

    #[test]
    fn only_errors_of_a_stream_are_errors() {
        for (event, want) in [
            (r#"{"choices":[],"message":"hello"}"#, false),
            (r#"{"type":"ping","message":{}}"#, false),
            (r#"{"choices":[],"error":null}"#, false),
            (r#"{"choices":[],"error":""}"#, false),
            (r#"{"choices":[],"error":{}}"#, false),
            (r#"{"message":null}"#, false),
            (r#"{"choices":[],"error":{"message":"m"}}"#, true),
            (r#"{"message":"m"}"#, true),
            (r#"{"detail":"m"}"#, true),
            (r#"{"type":"error","error":{}}"#, true),
        ] {
            let value = serde_json::from_str(event).unwrap();
            assert_eq!(
                parse_stream_error(&value, "choices").is_some(),
                want,
                "{event}"
            );
        }
    }

    #[test]
    fn a_body_that_is_no_json_says_its_text_or_the_title_of_its_page() {
        for (body, want) in [
            ("404 page not found\n", "404 page not found"),
            (
                "<html><TITLE>502 Bad\n Gateway</TITLE></html>",
                "502 Bad Gateway",
            ),
            ("<html></title><title></html>", ""),
            ("<p>x</p>", ""),
            ("{\"broken", ""),
            ("", ""),
        ] {
            assert_eq!(parse_text(body).message, want, "{body}");
        }
    }
}
