//! Caps as people write them: counts, dollars as decimals, seconds.

use super::check_known_fields;
use crate::error::Error;
use crate::json::{JsonObject, JsonValue};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;

const CAP_FIELDS: [&str; 6] = ["turns", "tokens", "spend", "spawns", "depth", "duration"];

/// Reads caps from an object such as `{turns: 10, tokens: 200000, spend: 0.10, duration: 300}`. A
/// missing or null field sets no cap. `spend` is in dollars and `duration` in seconds, both exact
/// decimals.
pub fn parse_limits(place: &str, value: Option<&JsonValue<'_>>) -> Result<ThreadCaps, Error> {
    let object = match value {
        None | Some(JsonValue::Null) => return Ok(ThreadCaps::NONE),
        Some(JsonValue::Object(object)) => object,
        Some(other) => {
            return Err(Error::invalid(
                place,
                &other.to_string(),
                "must be an object of caps",
            ));
        }
    };
    check_known_fields(place, object, &CAP_FIELDS)?;
    let limits = ThreadCaps {
        turns: count_field(place, object, "turns")?,
        tokens: count_field(place, object, "tokens")?,
        spend: decimal_field(place, object, "spend")?,
        spawns: count_field(place, object, "spawns")?,
        depth: count_field(place, object, "depth")?,
        duration: decimal_field(place, object, "duration")?
            .map(|seconds| seconds.get() / 1_000_000),
    };
    limits.check(place)?;
    Ok(limits)
}

fn count_field(place: &str, object: &JsonObject<'_>, name: &str) -> Result<Option<u64>, Error> {
    match object.get(name) {
        None | Some(JsonValue::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            Error::invalid(
                format!("{place}.{name}"),
                &value.to_string(),
                "must be a whole number, zero or more",
            )
        }),
    }
}

/// Reads a decimal with at most nine places: a number as it was written, or text.
pub(super) fn decimal_field(
    place: &str,
    object: &JsonObject<'_>,
    name: &str,
) -> Result<Option<NanoUsd>, Error> {
    let text = match object.get(name) {
        None | Some(JsonValue::Null) => return Ok(None),
        Some(JsonValue::String(text)) => text.to_string(),
        Some(other) => other.to_string(),
    };
    NanoUsd::parse(&text)
        .map(Some)
        .map_err(|e| Error::invalid(format!("{place}.{name}"), &text, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn parse(text: &str) -> Result<ThreadCaps, Error> {
        parse_limits("limits", Some(&crate::json::parse(text).unwrap()))
    }

    #[test]
    fn reads_exact_amounts() {
        let limits =
            parse(r#"{"turns": 3, "spend": 0.10, "duration": 1.5, "tokens": null}"#).unwrap();
        assert_eq!(
            (limits.turns, limits.spend, limits.duration, limits.tokens),
            (Some(3), Some(NanoUsd::new(100_000_000)), Some(1_500), None)
        );
        let largest = parse(r#"{"depth": 2147483647, "tokens": 9223372036854775807}"#).unwrap();
        assert_eq!(largest.depth, Some(crate::limits::COUNT_CAP_MAX));
        assert_eq!(largest.tokens, Some(crate::limits::CAP_MAX));
        assert_eq!(
            parse(r#"{"spend": "0"}"#).unwrap().spend,
            Some(NanoUsd::ZERO)
        );
    }

    #[test]
    fn refuses_what_is_not_exact() {
        for text in [
            r#"{"turns": -1}"#,
            r#"{"turns": 1.5}"#,
            r#"{"turns": "3"}"#,
            r#"{"turns": 2147483648}"#,
            r#"{"tokens": 9223372036854775808}"#,
            r#"{"spend": "9223372036.854775808"}"#,
            r#"{"spend": -0.1}"#,
            r#"{"spend": 1e3}"#,
            r#"{"spend": 0.0000000001}"#,
            r#"{"spend": "NaN"}"#,
            r#"{"spend": 99999999999999}"#,
            r#"{"spend": true}"#,
            r#"[]"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let Err(ErrorKind::Invalid { nearest, .. }) =
            parse(r#"{"turn": 1}"#).map_err(Error::into_kind)
        else {
            panic!("must refuse")
        };
        assert_eq!(nearest.as_deref(), Some("turns"));
    }
}
