//! Patches (RFC 6902) and operations on a state, applied again for the audit by code of its own.
//!
//! What is stored was applied before, so this says only whether it can be applied; `test` changes
//! nothing and is passed over.

use super::record_reader::{list, text};
use serde_json::{Map, Value};

/// Applies a stored patch. `None` if it does not apply.
pub(super) fn apply_patch(target: &mut Value, patch: &Value) -> Option<()> {
    for step in list(patch) {
        let path = pointer_tokens(text(&step["path"]))?;
        match text(&step["op"]) {
            "add" => add(target, &path, step["value"].clone())?,
            "remove" => drop(remove(target, &path)?),
            "replace" => *place_of(target, &path)? = step["value"].clone(),
            "move" => {
                let value = remove(target, &pointer_tokens(text(&step["from"]))?)?;
                add(target, &path, value)?;
            }
            "copy" => {
                let from = pointer_tokens(text(&step["from"]))?;
                let value = place_of(target, &from)?.clone();
                add(target, &path, value)?;
            }
            "test" => {}
            _ => return None,
        }
    }
    Some(())
}

/// Applies a stored operation. `None` if it does not apply.
pub(super) fn apply_operation(target: &mut Value, operation: &Value) -> Option<()> {
    let path = pointer_tokens(text(&operation["path"]))?;
    let (op, value) = (text(&operation["op"]), &operation["value"]);
    if op == "set-remove" {
        if let Some(Value::Array(items)) = place_of(target, &path) {
            items.retain(|item| !is_same(item, value));
        }
        return Some(());
    }
    let place = made_place(target, &path)?;
    if op == "set-add" {
        if place.is_null() {
            *place = Value::Array(Vec::new());
        }
        let items = place.as_array_mut()?;
        if !items.iter().any(|item| is_same(item, value)) {
            items.push(value.clone());
        }
        return Some(());
    }
    let given = value.as_i64()?;
    let found = match place.is_null() {
        true => None,
        false => Some(place.as_i64()?),
    };
    *place = Value::from(match (op, found) {
        ("add" | "max" | "min", None) => given,
        ("add", Some(found)) => found.checked_add(given)?,
        ("max", Some(found)) => found.max(given),
        ("min", Some(found)) => found.min(given),
        _ => return None,
    });
    Some(())
}

fn pointer_tokens(pointer: &str) -> Option<Vec<String>> {
    let unescape = |token: &str| token.replace("~1", "/").replace("~0", "~");
    match pointer {
        "" => Some(Vec::new()),
        pointer => Some(
            pointer
                .strip_prefix('/')?
                .split('/')
                .map(unescape)
                .collect(),
        ),
    }
}

fn place_of<'a>(target: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(target, |place, token| match place {
        Value::Object(map) => map.get_mut(token),
        Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns the place that a path names; what is missing is made, the place itself as null.
fn made_place<'a>(target: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    let (last, parents) = path.split_last()?;
    let mut place = target;
    for token in parents {
        place = match place {
            Value::Object(map) => map.entry(token).or_insert_with(|| Map::new().into()),
            Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    match place {
        Value::Object(map) => Some(map.entry(last).or_insert(Value::Null)),
        Value::Array(items) => items.get_mut(last.parse::<usize>().ok()?),
        _ => None,
    }
}

fn add(target: &mut Value, path: &[String], value: Value) -> Option<()> {
    let Some((last, parents)) = path.split_last() else {
        *target = value;
        return Some(());
    };
    match place_of(target, parents)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(items) => {
            let at = match last.as_str() {
                "-" => items.len(),
                index => index.parse().ok().filter(|at| *at <= items.len())?,
            };
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    match place_of(target, parents)? {
        Value::Object(map) => map.shift_remove(last),
        Value::Array(items) => {
            let at = last.parse().ok().filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

/// Compares elements of a set: numbers by their value.
fn is_same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => {
            let decimals = (decimal(&one.to_string()), decimal(&two.to_string()));
            one == two || matches!(decimals, (Some(one), Some(two)) if one == two)
        }
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_same(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            let same = |(name, value): (&String, &Value)| {
                two.get(name).is_some_and(|other| is_same(value, other))
            };
            one.len() == two.len() && one.iter().all(same)
        }
        _ => one == two,
    }
}

/// Returns the sign, the digits without zeros at either end, and the power of ten of the last;
/// `None` if no 64 bits hold the exponent.
fn decimal(number: &str) -> Option<(bool, String, i128)> {
    let lower = number.to_ascii_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some((false, String::new(), 0));
    }
    let fraction = mantissa.split_once('.').map_or(0, |(_, after)| after.len());
    let kept = digits.trim_end_matches('0');
    let zeros = digits.len() - kept.len();
    let exponent: i64 = exponent.parse().ok()?;
    let power = i128::from(exponent) - fraction as i128 + zeros as i128;
    Some((lower.starts_with('-'), kept.to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the auditor found a state of two numbers changed that nobody had touched. Cause: it
    /// took all numbers whose exponents no 64 bits hold for equal.
    #[test]
    fn numbers_are_equal_by_value_as_the_component_has_it() {
        for (one, two, expected) in [
            ("1.0", "1e0", true),
            ("0.1", "0.10000000000000000001", false),
            ("1e+999999999999999999999", "1e+999999999999999999999", true),
            (
                "1e+999999999999999999999",
                "2e+999999999999999999999",
                false,
            ),
            (
                "10e+999999999999999999998",
                "1e+999999999999999999999",
                false,
            ),
            ("0e+999999999999999999999", "0", true),
        ] {
            let number = |text| serde_json::from_str::<Value>(text).expect("a number");
            assert_eq!(is_same(&number(one), &number(two)), expected, "{one} {two}");
        }
    }
}
