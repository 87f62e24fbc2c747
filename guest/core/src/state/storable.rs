//! The bounds of a value that can be stored, read again and changed: it is not too large, not
//! nested too deep, and has no names that a reader would not give back.

use crate::json::{JsonObject, JsonValue, NUMBER_FIELD};

/// Most bytes of a state document as JSON text: it is read and written whole by each change of it.
pub const STATE_BYTES_MAX: usize = 256 << 10;

/// Most levels of a value of a state, and of its patches. The parser takes 128, and an entry has a
/// few of its own around a patch.
pub const STATE_DEPTH_MAX: usize = 100;

/// Returns the problem of a value that is nested too deep to be read again from an entry.
pub fn find_excess_depth(value: &JsonValue<'_>) -> Option<String> {
    let problem = || format!("is nested deeper than {STATE_DEPTH_MAX} levels");
    (count_levels(value) > STATE_DEPTH_MAX).then(problem)
}

/// Returns how deep a value is nested: 0 for one that holds no other.
pub(super) fn count_levels(value: &JsonValue<'_>) -> usize {
    match value {
        JsonValue::Array(items) => match items.iter().map(count_levels).max() {
            Some(deepest) => deepest + 1,
            None => 0,
        },
        JsonValue::Object(map) => match map.iter().map(|(_, value)| count_levels(value)).max() {
            Some(deepest) => deepest + 1,
            None => 0,
        },
        _ => 0,
    }
}

/// Returns what keeps a value from being stored, if something does.
pub(super) fn find_unstorable(value: &JsonValue<'_>) -> Option<String> {
    find_at_depth(value, 1)
}

fn find_at_depth(value: &JsonValue<'_>, depth: usize) -> Option<String> {
    let nested = match value {
        JsonValue::Array(items) => !items.is_empty(),
        JsonValue::Object(map) => !map.is_empty(),
        _ => return None,
    };
    if nested && depth > STATE_DEPTH_MAX {
        return Some(format!("is nested deeper than {STATE_DEPTH_MAX} levels"));
    }
    match value {
        JsonValue::Array(items) => items.iter().find_map(|item| find_at_depth(item, depth + 1)),
        JsonValue::Object(map) => {
            let mut fields = map.iter();
            find_wrong_name(map)
                .or_else(|| fields.find_map(|(_, item)| find_at_depth(item, depth + 1)))
        }
        _ => None,
    }
}

/// Returns what is wrong with the names of an object: a name twice has no place that a pointer
/// names, and one name is taken by the parser for a number.
fn find_wrong_name(map: &JsonObject<'_>) -> Option<String> {
    if map.keys().any(|name| name == NUMBER_FIELD) {
        return Some(format!(
            "has a field {NUMBER_FIELD:?}, a name that is reserved"
        ));
    }
    let twice = map.find_repeated_name()?;
    Some(format!("has the field {twice:?} twice"))
}
