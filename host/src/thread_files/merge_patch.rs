//! JSON merge patches (RFC 7396), as incremental copies hold them.
//!
//! A merge patch cannot say that a field is null: it removes the field. Readers of a checkpoint
//! take a missing field for null, so a document is the same for them.

use serde_json::{Map, Value};

/// Returns the patch that makes `new` of `old`, but for fields that are null in `new`.
pub fn make_merge_patch(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before) if before.is_object() && value.is_object() => {
                patch.insert(name.clone(), make_merge_patch(before, value));
            }
            _ => {
                patch.insert(name.clone(), without_nulls(value));
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Returns the value without fields that are null, which an inserted object cannot have.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(name, value)| (name.clone(), without_nulls(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// Applies a patch to a document.
pub fn apply_merge_patch(document: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *document = patch.clone();
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Value::Object(fields) = document else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            apply_merge_patch(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The cases of RFC 7396, appendix A: a document, a patch, the result.
    #[test]
    fn patches_apply_as_the_standard_says() {
        for (before, patch, after) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut document = before.clone();
            apply_merge_patch(&mut document, &patch);
            assert_eq!(document, after, "{before} {patch}");
        }
    }

    #[test]
    fn patch_makes_the_new_document_of_the_old_but_for_nulls() {
        let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "gone": 0, "n": null, "m": [1, 2]});
        let new =
            json!({"a": null, "b": {"c": [2], "d": 2}, "n": null, "m": [1], "o": {"p": null}});
        let patch = make_merge_patch(&old, &new);
        assert_eq!(
            patch,
            json!({"a": null, "b": {"c": [2]}, "gone": null, "m": [1], "o": {}})
        );
        let mut made = old.clone();
        apply_merge_patch(&mut made, &patch);
        assert_eq!(
            made,
            json!({"b": {"c": [2], "d": 2}, "n": null, "m": [1], "o": {}})
        );
        assert_eq!(make_merge_patch(&new, &new), json!({}));
    }
}
