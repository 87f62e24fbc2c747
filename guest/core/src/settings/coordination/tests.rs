//! Settings of coordination as files write them: values, defaults, and refusals by place.

use super::*;
use crate::error::ErrorKind;

fn parse(text: &str) -> Result<CoordinationSettings, Error> {
    CoordinationSettings::parse(Some(text))
}

/// Returns a document in which a key of the table has this value.
fn document(path: &str, value: &str) -> String {
    let names = path.split('.').rev();
    names.fold(value.to_owned(), |inner, name| {
        format!(r#"{{"{name}":{inner}}}"#)
    })
}

#[test]
fn missing_keys_have_the_defaults_of_the_table() {
    let expected = CoordinationSettings::default();
    assert_eq!(CoordinationSettings::parse(None).unwrap(), expected);
    let mut texts = vec!["{}".to_owned(), r#"{"coordination":null}"#.to_owned()];
    for key in COORDINATION_KEYS
        .iter()
        .filter(|key| **key != SUMMARY_DIRECTIVE)
    {
        texts.push(document(key.path, "null"));
    }
    for section in [
        "continuation",
        "wait_threads",
        "continuation.summary_limit_overrides",
    ] {
        texts.push(document(&format!("coordination.{section}"), "null"));
        texts.push(document(&format!("coordination.{section}"), "{}"));
    }
    for text in texts {
        assert_eq!(parse(&text).unwrap(), expected, "{text}");
    }
}

/// The default of each key, written into the file, changes nothing but that it is named there.
#[test]
fn defaults_of_the_table_can_be_written_into_a_file() {
    for key in COORDINATION_KEYS {
        let settings = parse(&document(key.path, key.default)).unwrap();
        let unset = CoordinationSettings {
            summary_model: None,
            summary_turns: None,
            summary_spend: None,
            ..settings
        };
        assert_eq!(unset, CoordinationSettings::default(), "{}", key.path);
    }
}

#[test]
fn every_key_of_the_table_is_read() {
    let text = concat!(
        r#"{"coordination":{"continuation":{"trigger_threshold":0.75,"#,
        r#""resume_ceiling_tokens":9000,"summary_directive":"own/brief","summary_model":"small","#,
        r#""summary_max_tokens":500,"summary_limit_overrides":{"turns":2,"spend":"0.005"}},"#,
        r#""wait_threads":{"default_timeout":90.5},"transcript_integrity":"lenient"}}"#
    );
    let expected = CoordinationSettings {
        trigger: 750_000,
        ceiling: 9_000,
        wait: 90_500,
        summary_directive: Some("own/brief".to_owned()),
        summary_model: Some("small".to_owned()),
        summary_tokens: 500,
        summary_turns: Some(2),
        summary_spend: Some(NanoUsd::new(5_000_000)),
    };
    assert_eq!(parse(text).unwrap(), expected);
    let none = parse(&document(SUMMARY_DIRECTIVE.path, "null")).unwrap();
    assert_eq!(none.summary_directive, None, "null is no summary");
}

#[test]
fn bad_values_are_refused_by_their_place() {
    let cases: [(CoordinationKey, &[&str]); 9] = [
        (
            TRIGGER,
            &[
                "90", "0", "0.001", "1.1", "-0.5", "1e-1", "true", "\"high\"", "[0.9]", "{}",
            ],
        ),
        (
            CEILING,
            &["0", "-1", "1.5", "\"16000\"", "9223372036854775808", "true"],
        ),
        (
            SUMMARY_DIRECTIVE,
            &["4", "\"\"", "false", "\"../up\"", "\"a b\"", "[\"a\"]"],
        ),
        (SUMMARY_MODEL, &["4", "\"\"", "{}", "false"]),
        (SUMMARY_TOKENS, &["0", "-1", "4e3", "\"many\""]),
        (SUMMARY_TURNS, &["0", "101", "1.5", "\"3\""]),
        (
            SUMMARY_SPEND,
            &["-0.1", "0.0000000001", "\"NaN\"", "99999999999999", "true"],
        ),
        (
            WAIT_TIMEOUT,
            &["0", "0.5", "86401", "-1", "\"long\"", "true"],
        ),
        (TRANSCRIPT_INTEGRITY, &["\"strickt\"", "\"\"", "true", "0"]),
    ];
    for (key, values) in cases {
        for value in values {
            let text = document(key.path, value);
            let Err(ErrorKind::Invalid { field, problem, .. }) =
                parse(&text).map_err(Error::into_kind)
            else {
                panic!("{text} is accepted")
            };
            assert_eq!(field, key.path, "{text}");
            assert!(
                problem.starts_with("must be") || field == SUMMARY_DIRECTIVE.path,
                "{problem}"
            );
        }
    }
}

/// Every key and section at every other level of the file is refused, and the refusal names its
/// place.
#[test]
fn known_keys_at_another_level_are_refused_with_their_place() {
    let places = COORDINATION_PLACES;
    let sections = [
        "",
        "coordination.",
        "coordination.continuation.",
        "coordination.wait_threads.",
    ];
    let mut checked = 0;
    for place in places {
        let name = place.rsplit('.').next().unwrap();
        for section in sections {
            let path = format!("{section}{name}");
            if places.contains(&path.as_str()) {
                continue;
            }
            let Err(ErrorKind::Invalid {
                field,
                problem,
                nearest,
                ..
            }) = parse(&document(&path, "1")).map_err(Error::into_kind)
            else {
                panic!("{path} is accepted")
            };
            assert_eq!((&field, nearest.as_deref()), (&path, Some(place)));
            assert!(problem.ends_with(place), "{problem}");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    for (path, expected) in [
        ("coordinaton", Some("coordination")),
        (
            "coordination.continuaton",
            Some("coordination.continuation"),
        ),
        (
            "coordination.continuation.trigger_treshold",
            Some(TRIGGER.path),
        ),
        ("coordination.trigger_treshold", Some(TRIGGER.path)),
        (
            "coordination.wait_threads.default_time",
            Some(WAIT_TIMEOUT.path),
        ),
        (
            "coordination.continuation.summary_limit_overrides.spent",
            Some(SUMMARY_SPEND.path),
        ),
        (
            "coordination.continuation.summary_limit_overrides.tokens",
            None,
        ),
        ("coordination.locks", None),
    ] {
        let Err(ErrorKind::Invalid { field, nearest, .. }) =
            parse(&document(path, "1")).map_err(Error::into_kind)
        else {
            panic!("{path} is accepted")
        };
        assert_eq!((field.as_str(), nearest.as_deref()), (path, expected));
    }
    for (path, value) in [("coordination", "[]"), ("coordination.continuation", "0.9")] {
        let Err(ErrorKind::Invalid { field, .. }) =
            parse(&document(path, value)).map_err(Error::into_kind)
        else {
            panic!("{path} is accepted")
        };
        assert_eq!(field, path);
    }
    assert!(parse("[]").is_err() && parse("{").is_err());
}
