//! Operations: changes of integers and sets that commute, so that they never fail because another
//! writer was faster. A place that is missing is made, with the objects above it.

use super::patch::{empty_object, outside_array};
use super::pointer::{JsonPointer, array_index, find_value_mut};
use crate::json::words;
use crate::json::{JsonNumber, JsonValue};

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Adds an integer to an integer; a missing one is 0.
    Add,
    /// The larger of two integers; a missing one is the other.
    Max,
    /// The smaller of two integers; a missing one is the other.
    Min,
    /// Adds an element to a set, unless it has an equal one.
    SetAdd,
    /// Removes an element from a set, if it is there.
    SetRemove,
}

words!(OperationKind {
    Add = "add", Max = "max", Min = "min", SetAdd = "set-add", SetRemove = "set-remove",
});

impl OperationKind {
    /// Returns the kind of this word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::Add,
            Self::Max,
            Self::Min,
            Self::SetAdd,
            Self::SetRemove,
        ];
        all.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Applies an operation to a value.
///
/// # Errors
/// The field at fault, `path` or `value`, and a sentence.
pub(super) fn apply_operation(
    target: &mut JsonValue<'static>,
    kind: OperationKind,
    path: &JsonPointer,
    value: &JsonValue<'static>,
) -> Result<(), (&'static str, String)> {
    let at_path = |problem| ("path", problem);
    match kind {
        OperationKind::Add | OperationKind::Max | OperationKind::Min => {
            let given = integer_of(value).ok_or_else(|| ("value", no_integer()))?;
            match find_value_mut(target, &path.tokens) {
                Some(place) => {
                    let found = integer_of(place).ok_or_else(|| ("path", not_at(no_integer())))?;
                    let sum = combine(kind, found, given).ok_or_else(|| ("value", overflow()))?;
                    *place = JsonValue::Number(JsonNumber::from(sum));
                }
                None => {
                    let number = || JsonValue::Number(JsonNumber::from(given));
                    make_place(target, path, number).map_err(at_path)?;
                }
            }
        }
        OperationKind::SetAdd => {
            let place = make_place(target, path, || JsonValue::Array(Vec::new()));
            let items = items_of(place.map_err(at_path)?).map_err(at_path)?;
            if !items.iter().any(|item| item.is_equal_to(value)) {
                items.push(value.clone());
            }
        }
        OperationKind::SetRemove => {
            if let Some(place) = find_value_mut(target, &path.tokens) {
                let items = items_of(place).map_err(at_path)?;
                items.retain(|item| !item.is_equal_to(value));
            }
        }
    }
    Ok(())
}

fn integer_of(value: &JsonValue<'_>) -> Option<i64> {
    match value {
        JsonValue::Number(number) => number.as_i64(),
        _ => None,
    }
}

fn no_integer() -> String {
    "is not an integer from -2^63 to 2^63 - 1".to_owned()
}

fn not_at(problem: String) -> String {
    format!("names a value that {problem}")
}

fn overflow() -> String {
    "makes a sum that is not an integer from -2^63 to 2^63 - 1".to_owned()
}

fn combine(kind: OperationKind, found: i64, given: i64) -> Option<i64> {
    match kind {
        OperationKind::Max => Some(found.max(given)),
        OperationKind::Min => Some(found.min(given)),
        _ => found.checked_add(given),
    }
}

fn items_of<'a>(
    place: &'a mut JsonValue<'static>,
) -> Result<&'a mut Vec<JsonValue<'static>>, String> {
    match place {
        JsonValue::Array(items) => Ok(items),
        _ => Err(not_at("is not an array, which a set is".to_owned())),
    }
}

/// Returns the value at a place; a missing one is made, with the objects above it.
fn make_place<'a>(
    target: &'a mut JsonValue<'static>,
    path: &JsonPointer,
    missing: impl Fn() -> JsonValue<'static>,
) -> Result<&'a mut JsonValue<'static>, String> {
    let Some((parents, name)) = path.split_last() else {
        return Err("names the whole scope, which is an object".to_owned());
    };
    let mut place = target;
    for token in parents {
        place = make_child(place, token, empty_object)?;
    }
    make_child(place, name, missing)
}

fn make_child<'a>(
    place: &'a mut JsonValue<'static>,
    name: &str,
    missing: impl Fn() -> JsonValue<'static>,
) -> Result<&'a mut JsonValue<'static>, String> {
    match place {
        JsonValue::Object(map) => Ok(map.get_or_insert_with(name, missing)),
        JsonValue::Array(items) => {
            let found = array_index(name).and_then(|at| items.get_mut(at));
            found.ok_or_else(outside_array)
        }
        _ => Err("names a place in a value that is no object and no array".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn apply_to_text(
        target: &str,
        kind: &str,
        path: &str,
        value: &str,
    ) -> Result<String, &'static str> {
        let mut target = json::parse(target).unwrap().into_owned();
        let value = json::parse(value).unwrap().into_owned();
        let kind = OperationKind::parse(kind).unwrap();
        let path = JsonPointer::parse(path).unwrap();
        let done = apply_operation(&mut target, kind, &path, &value);
        done.map(|()| target.to_string())
            .map_err(|(field, _)| field)
    }

    #[test]
    fn operations_change_integers_and_sets() {
        for (target, kind, path, value, expected) in [
            ("{}", "add", "/n", "2", Ok(r#"{"n":2}"#)),
            ("{}", "add", "/a/b/n", "-2", Ok(r#"{"a":{"b":{"n":-2}}}"#)),
            (r#"{"n":5}"#, "add", "/n", "-7", Ok(r#"{"n":-2}"#)),
            (r#"{"n":[1,2]}"#, "add", "/n/1", "1", Ok(r#"{"n":[1,3]}"#)),
            (r#"{"n":5}"#, "max", "/n", "7", Ok(r#"{"n":7}"#)),
            (r#"{"n":5}"#, "min", "/n", "7", Ok(r#"{"n":5}"#)),
            ("{}", "min", "/n", "7", Ok(r#"{"n":7}"#)),
            ("{}", "set-add", "/s", r#""x""#, Ok(r#"{"s":["x"]}"#)),
            (r#"{"s":[1]}"#, "set-add", "/s", "1.0", Ok(r#"{"s":[1]}"#)),
            (
                r#"{"s":[1,2]}"#,
                "set-remove",
                "/s",
                "1e0",
                Ok(r#"{"s":[2]}"#),
            ),
            ("{}", "set-remove", "/a/s", "1", Ok("{}")),
            (r#"{"n":"5"}"#, "add", "/n", "1", Err("path")),
            (r#"{"n":1.5}"#, "add", "/n", "1", Err("path")),
            (r#"{"n":5}"#, "add", "/n", "1.5", Err("value")),
            (r#"{"n":5}"#, "max", "/n", r#""9""#, Err("value")),
            (
                r#"{"n":9223372036854775807}"#,
                "add",
                "/n",
                "1",
                Err("value"),
            ),
            (r#"{"n":5}"#, "add", "", "1", Err("path")),
            (r#"{"n":5}"#, "add", "/n/m", "1", Err("path")),
            (r#"{"n":[1]}"#, "add", "/n/1", "1", Err("path")),
            (r#"{"n":[1]}"#, "add", "/n/-", "1", Err("path")),
            (r#"{"n":5}"#, "set-add", "/n", "1", Err("path")),
            (r#"{"n":5}"#, "set-remove", "/n", "1", Err("path")),
        ] {
            let found = apply_to_text(target, kind, path, value);
            assert_eq!(
                found.as_deref(),
                expected.as_deref(),
                "{target} {kind} {path} {value}"
            );
        }
    }
}
