//! The scenario, and how an answer is compared with what a line expects of it.

use serde_json::Value;
use std::path::PathBuf;

/// Returns the folder of the hosts.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("hosts")
}

/// Reads the lines of the scenario.
pub fn read_scenario() -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join("scenario.jsonl")).unwrap();
    let lines = text.lines().enumerate();
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("line {}: {error}", at + 1))
        })
        .collect()
}

/// Returns true if `found` has all that is expected: of an object the fields that are named, where
/// `null` is one that is absent; of a list each element; of a text that begins with `...` the rest
/// of it anywhere; of a number with `$most` at most that; of a text with `$json` that JSON.
pub fn holds(expected: &Value, found: &Value) -> bool {
    let most = expected.get("$most").and_then(Value::as_u64);
    match (expected, found) {
        (Value::Object(fields), Value::String(text)) if fields.contains_key("$json") => {
            serde_json::from_str(text).is_ok_and(|found| holds(&fields["$json"], &found))
        }
        _ if most.is_some() => found.as_u64() <= most && found.is_u64(),
        (Value::Object(fields), Value::Object(found)) => fields
            .iter()
            .all(|(name, field)| holds(field, found.get(name).unwrap_or(&Value::Null))),
        (Value::Array(items), Value::Array(found)) => {
            items.len() == found.len() && items.iter().zip(found).all(|(of, at)| holds(of, at))
        }
        (Value::String(text), Value::String(found)) => match text.strip_prefix("...") {
            Some(part) => found.contains(part),
            None => text == found,
        },
        _ => expected == found,
    }
}
