//! JSON as a person reads it.

use serde_json::Value;

/// Writes a JSON text for a person: on one line, with the characters that it escapes (`\u00e9`) as
/// characters. Returns a text that is no JSON unchanged.
///
/// Control characters stay escaped, and what prints the text makes the others visible that a
/// terminal would obey.
pub fn describe_json(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => value.to_string(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_characters_and_controls_stay_escaped() {
        for (text, expected) in [
            (r#"{"path": "caf\u00e9"}"#, r#"{"path":"café"}"#),
            (r#"{"a":1.50,"b":[1, 2]}"#, r#"{"a":1.50,"b":[1,2]}"#),
            (r#"{"a":"\u001b[2J\n"}"#, r#"{"a":"\u001b[2J\n"}"#),
            ("\"\\ud83d\\ude42\"", "\"🙂\""),
            (r#"{"cut": "he"#, r#"{"cut": "he"#),
            ("", ""),
        ] {
            assert_eq!(describe_json(text), expected, "{text}");
        }
    }
}
