//! JSON patches (RFC 6902) on core's own tree, whose numbers keep their digits.

use super::patch_size::{PatchSize, bytes_around};
use super::pointer::{JsonPointer, array_index, find_value, find_value_mut};
use crate::json::{JsonObject, JsonValue};

/// The refusal of a patch. The value is partly changed then: discard it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchRefusal {
    /// Index of the operation at fault; `None` if the patch is no list.
    pub at: Option<usize>,
    /// A sentence that says what is wrong.
    pub problem: String,
}

/// Applies a patch to a value: all of its operations, in order. `size` is that of the document that
/// has the value.
///
/// # Errors
/// The first operation that does not apply, or makes the document larger than can be stored.
pub fn apply_patch(
    target: &mut JsonValue<'static>,
    patch: &JsonValue<'_>,
    size: &mut PatchSize,
) -> Result<(), PatchRefusal> {
    let JsonValue::Array(steps) = patch else {
        return Err(PatchRefusal {
            at: None,
            problem: "is not a list of operations".to_owned(),
        });
    };
    size.begin_patch();
    for (at, step) in steps.iter().enumerate() {
        apply_step(target, step, size).map_err(|problem| PatchRefusal {
            at: Some(at),
            problem,
        })?;
    }
    Ok(())
}

fn apply_step(
    target: &mut JsonValue<'static>,
    step: &JsonValue<'_>,
    size: &mut PatchSize,
) -> Result<(), String> {
    let op = text_of(step, "op")?;
    let path = pointer_of(step, "path")?;
    match op {
        "add" => add_value(target, &path, value_of(step)?, size),
        "remove" => remove_value(target, &path, size).map(drop),
        "replace" => {
            let value = value_of(step)?;
            let found = require_present(find_value_mut(target, &path.tokens))?;
            size.count_put(&path, &value, Some(found), 0)?;
            *found = value;
            Ok(())
        }
        "move" => {
            let from = pointer_of(step, "from")?;
            if from.meets(&path) && from.tokens.len() < path.tokens.len() {
                return Err("moves a value into itself".to_owned());
            }
            size.count_copied(require_present(find_value(target, &from.tokens))?)?;
            let value = remove_value(target, &from, size)?;
            add_value(target, &path, value, size)
        }
        "copy" => {
            let from = pointer_of(step, "from")?;
            let value = require_present(find_value(target, &from.tokens))?;
            size.count_copied(value)?;
            let value = value.clone();
            add_value(target, &path, value, size)
        }
        "test" => {
            let value = value_of(step)?;
            let found = require_present(find_value(target, &path.tokens))?;
            match found.is_equal_to(&value) {
                true => Ok(()),
                false => Err("tests for a value that is not there".to_owned()),
            }
        }
        op => Err(format!(
            "has the op {op:?}: it is none of add, remove, replace, move, copy and test"
        )),
    }
}

fn require_present<T>(found: Option<T>) -> Result<T, String> {
    found.ok_or_else(|| "names a place that is not there".to_owned())
}

pub(super) fn text_of<'a>(step: &'a JsonValue<'_>, name: &str) -> Result<&'a str, String> {
    let text = step.get(name).and_then(JsonValue::as_str);
    text.ok_or_else(|| format!("has no text `{name}`"))
}

pub(super) fn pointer_of(step: &JsonValue<'_>, name: &str) -> Result<JsonPointer, String> {
    let text = text_of(step, name)?;
    JsonPointer::parse(text).map_err(|problem| format!("has a `{name}` that {problem}"))
}

fn value_of(step: &JsonValue<'_>) -> Result<JsonValue<'static>, String> {
    let value = step.get("value").cloned().map(JsonValue::into_owned);
    value.ok_or_else(|| "has no `value`".to_owned())
}

fn add_value(
    target: &mut JsonValue<'static>,
    path: &JsonPointer,
    value: JsonValue<'static>,
    size: &mut PatchSize,
) -> Result<(), String> {
    let Some((parent, name)) = path.split_last() else {
        size.count_put(path, &value, Some(target), 0)?;
        *target = value;
        return Ok(());
    };
    match require_present(find_value_mut(target, parent))? {
        JsonValue::Object(map) => {
            match map.get_mut(name) {
                Some(found) => {
                    size.count_put(path, &value, Some(found), 0)?;
                    *found = value;
                }
                None => {
                    let around = bytes_around(Some(name), map.is_empty());
                    size.count_put(path, &value, None, around)?;
                    map.insert(name.to_owned(), value);
                }
            }
            Ok(())
        }
        JsonValue::Array(items) => {
            let at = match name {
                "-" => Some(items.len()),
                name => array_index(name).filter(|at| *at <= items.len()),
            };
            let at = at.ok_or_else(outside_array)?;
            size.count_put(path, &value, None, bytes_around(None, items.is_empty()))?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err("names a place in a value that is no object and no array".to_owned()),
    }
}

pub(super) fn outside_array() -> String {
    "names a place outside an array".to_owned()
}

fn remove_value(
    target: &mut JsonValue<'static>,
    path: &JsonPointer,
    size: &mut PatchSize,
) -> Result<JsonValue<'static>, String> {
    let Some((parent, name)) = path.split_last() else {
        return Err("removes the whole value: replace it by {}".to_owned());
    };
    let (removed, around) = match require_present(find_value_mut(target, parent))? {
        JsonValue::Object(map) => {
            let removed = map.shift_remove(name);
            (removed, bytes_around(Some(name), map.is_empty()))
        }
        JsonValue::Array(items) => {
            let at = array_index(name).filter(|at| *at < items.len());
            let removed = at.map(|at| items.remove(at));
            (removed, bytes_around(None, items.is_empty()))
        }
        _ => (None, 0),
    };
    let removed = require_present(removed)?;
    size.count_removed(&removed, around);
    Ok(removed)
}

/// A place that a patch or operation touches, and what it does there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TouchedPlace {
    /// The place.
    pub path: JsonPointer,
    /// False if it is only read.
    pub writes: bool,
}

/// Returns the places that a patch touches. `before` is the value that it is applied to: what is
/// added to an array or removed from one moves its other elements, so it touches the whole array.
pub(super) fn touched_places(before: &JsonValue<'_>, patch: &JsonValue<'_>) -> Vec<TouchedPlace> {
    let JsonValue::Array(steps) = patch else {
        return Vec::new();
    };
    let mut places = Vec::new();
    for step in steps {
        let op = text_of(step, "op").unwrap_or_default();
        let writes = op != "test";
        let shifts = matches!(op, "add" | "remove" | "move" | "copy");
        if let Ok(path) = pointer_of(step, "path") {
            let path = if shifts {
                shifted_place(before, path)
            } else {
                path
            };
            places.push(TouchedPlace { path, writes });
        }
        if let Ok(from) = pointer_of(step, "from") {
            let writes = op == "move";
            let path = if writes {
                shifted_place(before, from)
            } else {
                from
            };
            places.push(TouchedPlace { path, writes });
        }
    }
    places
}

/// Returns the place of the array, if a place may be in one.
fn shifted_place(before: &JsonValue<'_>, path: JsonPointer) -> JsonPointer {
    let Some((parent, name)) = path.split_last() else {
        return path;
    };
    let is_index = name == "-" || array_index(name).is_some();
    let in_object = matches!(find_value(before, parent), Some(JsonValue::Object(_)));
    match is_index && !in_object {
        true => JsonPointer {
            tokens: parent.to_vec(),
        },
        false => path,
    }
}

/// Returns an empty object.
pub(super) fn empty_object() -> JsonValue<'static> {
    JsonValue::Object(JsonObject::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn patch_text(target: &str, patch: &str) -> Result<String, PatchRefusal> {
        let mut target = json::parse(target).unwrap().into_owned();
        let patch = json::parse(patch).unwrap();
        let mut size = PatchSize::new(target.to_string().len());
        apply_patch(&mut target, &patch, &mut size)?;
        let text = target.to_string();
        assert_eq!(size.document_bytes(), text.len(), "{patch} makes {text}");
        Ok(text)
    }

    /// The examples of appendix A of RFC 6902, and where it is silent what this module decides.
    #[test]
    fn patches_apply_as_the_rfc_says() {
        for (target, patch, expected) in [
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
                r#"{"foo":"bar","baz":"qux"}"#,
            ),
            (
                r#"{"foo":["bar","baz"]}"#,
                r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
                r#"{"foo":["bar","qux","baz"]}"#,
            ),
            (
                r#"{"baz":"qux","foo":"bar"}"#,
                r#"[{"op":"remove","path":"/baz"}]"#,
                r#"{"foo":"bar"}"#,
            ),
            (
                r#"{"foo":["all","grass","cows","eat"]}"#,
                r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
                r#"{"foo":["all","cows","eat","grass"]}"#,
            ),
            (
                r#"{"baz":"qux","foo":["a",2,"c"]}"#,
                concat!(
                    r#"[{"op":"test","path":"/baz","value":"qux"},"#,
                    r#"{"op":"test","path":"/foo/1","value":2.0}]"#
                ),
                r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            ),
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/child","value":{"grandchild":{}},"xyz":123}]"#,
                r#"{"foo":"bar","child":{"grandchild":{}}}"#,
            ),
            (
                r#"{"foo":["bar"]}"#,
                r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
                r#"{"foo":["bar",["abc","def"]]}"#,
            ),
            (
                r#"{"/":9,"~1":10}"#,
                r#"[{"op":"test","path":"/~01","value":10}]"#,
                r#"{"/":9,"~1":10}"#,
            ),
            (
                r#"{"a":1.50}"#,
                r#"[{"op":"copy","from":"/a","path":"/b"}]"#,
                r#"{"a":1.50,"b":1.50}"#,
            ),
            (
                r#"{"a":1}"#,
                r#"[{"op":"replace","path":"","value":{}}]"#,
                "{}",
            ),
            (r#"{"a":1}"#, "[]", r#"{"a":1}"#),
            (
                r#"{"a":1}"#,
                r#"[{"op":"move","from":"/a","path":"/a"}]"#,
                r#"{"a":1}"#,
            ),
        ] {
            assert_eq!(
                patch_text(target, patch).as_deref(),
                Ok(expected),
                "{patch}"
            );
        }
    }

    #[test]
    fn patches_that_do_not_apply_are_refused_by_their_place() {
        for (target, patch, at) in [
            ("{}", "{}", None),
            ("{}", "[1]", Some(0)),
            ("{}", r#"[{"op":"add","path":"/a"}]"#, Some(0)),
            ("{}", r#"[{"path":"/a","value":1}]"#, Some(0)),
            ("{}", r#"[{"op":"add","value":1}]"#, Some(0)),
            ("{}", r#"[{"op":"put","path":"/a","value":1}]"#, Some(0)),
            ("{}", r#"[{"op":"add","path":"/a/b","value":1}]"#, Some(0)),
            ("{}", r#"[{"op":"add","path":"a","value":1}]"#, Some(0)),
            ("{}", r#"[{"op":"remove","path":"/a"}]"#, Some(0)),
            ("{}", r#"[{"op":"remove","path":""}]"#, Some(0)),
            ("{}", r#"[{"op":"replace","path":"/a","value":1}]"#, Some(0)),
            (
                r#"{"a":[1]}"#,
                r#"[{"op":"add","path":"/a/2","value":1}]"#,
                Some(0),
            ),
            (
                r#"{"a":[1]}"#,
                r#"[{"op":"add","path":"/a/01","value":1}]"#,
                Some(0),
            ),
            (
                r#"{"a":[1]}"#,
                r#"[{"op":"remove","path":"/a/-"}]"#,
                Some(0),
            ),
            (
                r#"{"a":[1]}"#,
                r#"[{"op":"replace","path":"/a/-","value":2}]"#,
                Some(0),
            ),
            (
                r#"{"a":{"b":1}}"#,
                r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
                Some(0),
            ),
            (
                r#"{"a":1}"#,
                r#"[{"op":"test","path":"/b","value":1}]"#,
                Some(0),
            ),
            (
                r#"{"a":1}"#,
                concat!(
                    r#"[{"op":"replace","path":"/a","value":2},"#,
                    r#"{"op":"test","path":"/a","value":1}]"#
                ),
                Some(1),
            ),
        ] {
            let refusal = patch_text(target, patch).expect_err(patch);
            assert_eq!(refusal.at, at, "{patch}: {}", refusal.problem);
        }
    }
}
