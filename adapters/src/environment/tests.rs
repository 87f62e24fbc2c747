//! Replacement of variables, and the variables that a snapshot keeps.

use super::*;

fn environment(pairs: &[(&str, &str)]) -> EnvironmentSnapshot {
    EnvironmentSnapshot::from_pairs(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

#[test]
fn variables_are_expanded_once() {
    let long = "x".repeat(VARIABLE_BYTES_MAX);
    let variables = environment(&[("A", "1"), ("B_2", "${A}"), ("EMPTY", ""), ("LONG", &long)]);
    let unset = |name: &str| {
        Err(ExpandError::Unset {
            name: name.to_owned(),
        })
    };
    let table = [
        ("", Ok("")),
        ("plain $ { } $A", Ok("plain $ { } $A")),
        ("${A}", Ok("1")),
        ("x${A}y${A}z", Ok("x1y1z")),
        ("${B_2}", Ok("${A}")),
        ("$${A}", Ok("$1")),
        ("${a}", unset("a")),
        ("${NONE}", unset("NONE")),
        ("${EMPTY}", unset("EMPTY")),
        ("${A", Err(ExpandError::Malformed)),
        ("${}", Err(ExpandError::Malformed)),
        ("${A B}", Err(ExpandError::Malformed)),
        ("${1A}", Err(ExpandError::Malformed)),
        ("${A:-x}", Err(ExpandError::Malformed)),
        ("${${A}}", Err(ExpandError::Malformed)),
        ("${LONG}${LONG}${A}", Err(ExpandError::TooLong)),
    ];
    for (text, expected) in table {
        assert_eq!(
            variables.expand(text),
            expected.map(str::to_owned),
            "{text:?}"
        );
    }
}

#[test]
fn snapshot_filters_and_bounds_variables() {
    let variables = environment(&[
        ("X_API_KEY", "sk-1"),
        ("X_BASE_URL", "u"),
        ("SECRET", "s"),
        ("a=b", "x"),
    ]);
    assert_eq!(variables.for_providers().get("X_API_KEY"), Some("sk-1"));
    assert_eq!(variables.for_providers().get("X_BASE_URL"), Some("u"));
    assert_eq!(variables.for_providers().get("SECRET"), None);
    assert_eq!(variables.with_only(&["SECRET"]).get("X_API_KEY"), None);
    assert_eq!(variables.get("a=b"), None);
    assert!(!format!("{variables:?}").contains("sk-1"));

    let too_long = "x".repeat(VARIABLE_BYTES_MAX + 1);
    assert_eq!(environment(&[("A", &too_long)]).get("A"), None);
    let many = EnvironmentSnapshot::from_pairs(
        (0..=VARIABLES_MAX).map(|n| (format!("V{n}"), "x".to_owned())),
    );
    assert_eq!(many.get("V0"), Some("x"));
    assert_eq!(many.get(&format!("V{VARIABLES_MAX}")), None);
}
