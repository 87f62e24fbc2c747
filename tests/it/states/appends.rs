//! Changes of a state that a caller appends.

use super::{StateWorld, change, operation, patch, set};
use crate::history::code;
use serde_json::{Value, json};
use threadkeep_component::service::history::ChangeTexts;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::state::{EDITS_BYTES_MAX, STATE_BYTES_MAX};

fn scopes(thread: Value, run: Value) -> Value {
    json!({"thread": thread, "run": run, "tool_call": {}})
}

#[test]
fn a_snapshot_is_followed_by_patches_and_then_operations() {
    let host = StateWorld::new();
    host.append(&change(
        &[set("thread", "n", json!(1)), set("run", "r", json!(1))],
        &[],
    ))
    .unwrap();
    let both = ChangeTexts {
        snapshot: Some(json!({"thread": {"n": 40}}).to_string()),
        ..change(
            &[patch(
                "thread",
                json!([{"op": "replace", "path": "/n", "value": 41}]),
            )],
            &[operation("thread", "add", "/n", json!(1))],
        )
    };
    let written = host.append(&both).unwrap();
    // What the snapshot does not name stays, and nothing is applied twice.
    assert_eq!(host.state(None), scopes(json!({"n": 42}), json!({"r": 1})));
    assert_eq!(host.state(Some(written.version)), host.state(None));
    assert_eq!(
        host.state(Some(written.version - 1)),
        scopes(json!({"n": 1}), json!({"r": 1}))
    );
    assert_eq!(host.state(Some(1)), scopes(json!({}), json!({})));
    assert_eq!(host.state(Some(0)), scopes(json!({}), json!({})));
}

/// Patches that are refused, each with the field at fault after `change.patches`.
fn refused_patches() -> Vec<(Vec<Value>, &'static str)> {
    let step = |step: Value| vec![patch("thread", json!([step]))];
    let tested = json!([{"op": "test", "path": "/x", "value": 2}]);
    let of_call = |scope: &str| json!({"scope": scope, "call": "call_1_0", "patch": []});
    vec![
        (
            step(json!({"op": "replace", "path": "/x", "value": 1})),
            "[0].patch[0]",
        ),
        (
            vec![set("thread", "x", json!(1)), patch("thread", tested)],
            "[1].patch[0]",
        ),
        (
            step(json!({"op": "remove", "path": "/list/9"})),
            "[0].patch[0]",
        ),
        (
            step(json!({"op": "replace", "path": "", "value": 1})),
            "[0].patch",
        ),
        (vec![json!({"scope": "thread", "patch": {}})], "[0].patch"),
        (vec![json!({"scope": "chain", "patch": []})], "[0].scope"),
        (
            vec![json!({"scope": "thread", "patch": [], "x": 1})],
            "[0].x",
        ),
        (vec![json!({"scope": "tool-call", "patch": []})], "[0].call"),
        (vec![of_call("tool-call")], "[0].call"),
        (vec![of_call("run")], "[0].call"),
        (
            vec![set("thread", "x", json!("x".repeat(EDITS_BYTES_MAX)))],
            "",
        ),
    ]
}

/// Operations that are refused, each with the field at fault after `change.operations`.
fn refused_operations() -> Vec<(Vec<Value>, &'static str)> {
    let add = |path: &str, value: Value| vec![operation("thread", "add", path, value)];
    vec![
        (add("/list", json!(1)), "[0].path"),
        (add("list", json!(1)), "[0].path"),
        (add("/n", json!(1.5)), "[0].value"),
        (add("/n", json!(i64::MAX)), "[0].value"),
        (vec![operation("thread", "set", "/n", json!(1))], "[0].op"),
        (vec![operation("thread", "add", "/n", json!(1)); 65], ""),
    ]
}

/// Changes that are refused, each with the field at fault.
fn refused_changes() -> Vec<(ChangeTexts, String)> {
    let snapshot = |value: Value| ChangeTexts {
        snapshot: Some(value.to_string()),
        ..ChangeTexts::default()
    };
    let large = json!({"thread": {"x": "x".repeat(STATE_BYTES_MAX - 20)}});
    let mut cases = vec![
        (ChangeTexts::default(), "events".to_owned()),
        (
            snapshot(json!({"tool_call": {}})),
            "change.snapshot.tool_call".to_owned(),
        ),
        (
            snapshot(json!({"thread": []})),
            "change.snapshot.thread".to_owned(),
        ),
        (snapshot(json!({})), "change.snapshot".to_owned()),
        (snapshot(large), "change".to_owned()),
    ];
    for (patches, field) in refused_patches() {
        cases.push((change(&patches, &[]), format!("change.patches{field}")));
    }
    for (operations, field) in refused_operations() {
        cases.push((
            change(&[], &operations),
            format!("change.operations{field}"),
        ));
    }
    cases
}

#[test]
fn a_change_that_does_not_apply_is_refused_by_its_place_and_writes_nothing() {
    let host = StateWorld::new();
    let first = change(
        &[
            set("thread", "list", json!([1])),
            set("thread", "n", json!(1)),
        ],
        &[],
    );
    host.append(&first).unwrap();
    let before = (host.version(), host.state(None));
    for (given, expected) in refused_changes() {
        match host.append(&given).map_err(Error::into_kind) {
            Err(ErrorKind::Core(CoreErrorKind::Invalid { field, .. })) => {
                assert_eq!(field, expected)
            }
            other => panic!("{expected}: {other:?}"),
        }
        assert_eq!((host.version(), host.state(None)), before, "{expected}");
    }
}

/// Names twice, names that the parser keeps for itself, and values that are nested too deep would
/// make a record that cannot be read again.
#[test]
fn what_could_not_be_read_again_is_refused() {
    let host = StateWorld::new();
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let with = |value: &str| ChangeTexts {
        patches: vec![format!(
            r#"{{"scope":"thread","patch":[{{"op":"add","path":"/x","value":{value}}}]}}"#
        )],
        ..ChangeTexts::default()
    };
    for value in [
        r#"{"a":1,"a":2}"#.to_owned(),
        r#"{"a":1,"b":0,"a":2}"#.to_owned(),
        r#"{"$serde_json::private::Number":"x","b":1}"#.to_owned(),
        deep(110),
        deep(200),
        "1e".to_owned(),
        r#""\ud800""#.to_owned(),
    ] {
        assert_eq!(
            code(&host.append(&with(&value)).unwrap_err()),
            "invalid",
            "{value}"
        );
    }
    let reserved = json!([{"op": "add", "path": "/$serde_json::private::Number", "value": "1"}]);
    let given = change(&[patch("thread", reserved)], &[]);
    assert_eq!(code(&host.append(&given).unwrap_err()), "invalid");
    // A document grows deep in steps, too.
    host.append(&with(&deep(90))).unwrap();
    let path = "/x".to_owned() + &"/0".repeat(88) + "/-";
    let further = |value: Value| {
        change(
            &[patch(
                "thread",
                json!([{"op": "add", "path": path, "value": value}]),
            )],
            &[],
        )
    };
    host.append(&further(json!(1))).unwrap();
    let levels: Value = serde_json::from_str(&deep(30)).unwrap();
    assert_eq!(code(&host.append(&further(levels)).unwrap_err()), "invalid");
    host.state(Some(host.version()));
}

/// Symptom: a note was acknowledged, and then its thread could not be read by anybody. Cause: its
/// body was nested as deep as a parser takes, and the entry has levels of its own around it. Kind:
/// JSON of a caller within an entry.
#[test]
fn what_is_nested_too_deep_within_an_entry_is_refused() {
    let host = StateWorld::new();
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let note = |levels: usize| ChangeTexts {
        events: vec![format!(
            r#"{{"type":"note","name":"n","body":{}}}"#,
            deep(levels)
        )],
        ..ChangeTexts::default()
    };
    for levels in [102, 125, 126, 200] {
        let refused = host.append(&note(levels)).unwrap_err();
        assert_eq!(code(&refused), "invalid", "{levels}");
    }
    host.append(&note(100)).unwrap();
    let entries = host.world.service.entries(&host.thread, 0, None, 100);
    assert!(!entries.unwrap().1.is_empty());
    let about = |levels: usize| format!(r#"{{"a":{}}}"#, deep(levels));
    assert!(threadkeep_core::runner::parse_about(&about(98)).is_ok());
    assert!(threadkeep_core::runner::parse_about(&about(126)).is_err());
}

/// Symptom: `test` of `1.0` against `1` fails. Cause: numbers keep their digits, and were compared
/// by them. Fix: they are compared by their value, on the digits. Kind: equality of JSON values.
#[test]
fn a_test_compares_numbers_by_value_and_digits_are_kept() {
    let host = StateWorld::new();
    let given =
        ChangeTexts {
            patches: vec![concat!(
            r#"{"scope":"thread","patch":[{"op":"add","path":"/n","value":1.00},"#,
            r#"{"op":"test","path":"/n","value":1},{"op":"test","path":"/n","value":10e-1}]}"#
        )
        .to_owned()],
            ..ChangeTexts::default()
        };
    host.append(&given).unwrap();
    let loaded = host.world.service.load(&host.thread).unwrap();
    let text = host
        .world
        .service
        .state_at(&loaded, loaded.head.value.version)
        .unwrap()
        .to_text();
    assert!(text.contains(r#"{"n":1.00}"#), "{text}");
}

#[test]
fn a_repeated_append_changes_the_state_once() {
    let host = StateWorld::new();
    let service = &host.world.service;
    let add = |n: u64| ChangeTexts {
        request: Some("r".to_owned()),
        ..change(&[], &[operation("thread", "add", "/n", json!(n))])
    };
    let append = |change: &ChangeTexts| service.append_change(&host.thread, None, Some(1), change);
    let first = append(&add(1)).unwrap();
    assert_eq!(append(&add(1)).unwrap().version, first.version);
    assert_eq!(host.state(None)["thread"], json!({"n": 1}));
    assert_eq!(code(&append(&add(2)).unwrap_err()), "conflict");
    let as_patch = change(&[operation("thread", "add", "/n", json!(1))], &[]);
    assert_eq!(code(&append(&as_patch).unwrap_err()), "invalid");
    // Operations meet whichever version there is.
    host.append(&add(2)).unwrap();
    host.append(&add(3)).unwrap();
    assert_eq!(host.state(None)["thread"], json!({"n": 6}));
}

/// Symptom: of ten writers that appended the same line at the same time three counted, and all were
/// told that it was done. Cause: the same content after the same version was taken for a repetition
/// of one call. Fix: a repetition has the token or the request of the first. Kind: requests that
/// are known again by what they ask for, and not by who asks.
#[test]
fn the_same_append_of_another_caller_is_no_repetition() {
    let host = StateWorld::new();
    let service = &host.world.service;
    let add = |request: Option<&str>| ChangeTexts {
        request: request.map(str::to_owned),
        ..change(&[], &[operation("thread", "add", "/n", json!(1))])
    };
    let append = |at: u64, request: Option<&str>| {
        let written = service.append_change(&host.thread, None, Some(at), &add(request));
        written
            .map(|written| written.version)
            .map_err(|error| code(&error))
    };
    assert_eq!(append(1, Some("a")), Ok(2));
    assert_eq!(append(1, Some("a")), Ok(2), "the same request");
    for other in [Some("b"), Some("A"), None] {
        assert_eq!(append(1, other), Err("conflict"), "{other:?}");
    }
    assert_eq!(append(2, None), Ok(3));
    for other in [None, Some("a")] {
        assert_eq!(append(2, other), Err("conflict"), "{other:?}");
    }
    assert_eq!(
        append(3, Some("a")),
        Ok(4),
        "at another version it is another append"
    );
    for wrong in ["", "a\n", &"r".repeat(129)] {
        assert_eq!(append(4, Some(wrong)), Err("invalid"), "{wrong:?}");
    }
    assert_eq!(host.state(None)["thread"], json!({"n": 3}));
    host.world.audit();
}

/// Returns a patch of 2 KB whose `copies` steps double the scope each.
pub fn doubling_patch(copies: usize) -> Value {
    let first = json!({"op": "add", "path": "/a", "value": "x".repeat(1_000)});
    let copy = |n: usize| json!({"op": "copy", "from": "", "path": format!("/b{n}")});
    patch(
        "thread",
        std::iter::once(first)
            .chain((0..copies).map(copy))
            .collect(),
    )
}

/// Symptom: 40 steps of `copy` made a state of many gigabytes: the component ran out of memory, and
/// an append or the result of a tool could never be recorded. Cause: the size of a state was looked
/// at after the last step. Fix: it is kept up to date step by step. Kind: steps whose result grows
/// by more than they weigh: in size, in depth, and in work.
#[test]
fn a_patch_is_refused_at_the_step_that_makes_too_much() {
    let host = StateWorld::new();
    let deepen = |n: usize| json!({"op": "copy", "from": "", "path": format!("/d{}", n % 2)});
    let nest = |n: usize| match n % 2 {
        0 => json!({"op": "add", "path": "/y", "value": {}}),
        _ => json!({"op": "move", "from": "/x", "path": "/y/x"}),
    };
    let renamed = |n: usize| match n % 3 {
        0 => vec![nest(0), nest(1)],
        1 => vec![json!({"op": "move", "from": "/y", "path": "/x"})],
        _ => vec![],
    };
    let x = json!({"op": "add", "path": "/x", "value": {"deep": 1}});
    let nesting = std::iter::once(x)
        .chain((0..600).flat_map(renamed))
        .collect();
    let back_and_forth = |n: usize| {
        let names = [["/big", "/other"], ["/other", "/big"]][n % 2];
        json!({"op": "move", "from": names[0], "path": names[1]})
    };
    let large = change(&[set("thread", "big", json!("x".repeat(60_000)))], &[]);
    host.append(&large).unwrap();
    let before = (host.version(), host.state(None));
    for (given, words) in [
        (doubling_patch(40), "makes a state of"),
        (
            patch("thread", (0..40).map(deepen).collect()),
            "makes a state of",
        ),
        (patch("thread", nesting), "nested deeper"),
        (
            patch("thread", (0..700).map(back_and_forth).collect()),
            "copies and moves",
        ),
    ] {
        match host
            .append(&change(&[given], &[]))
            .map_err(Error::into_kind)
        {
            Err(ErrorKind::Core(CoreErrorKind::Invalid { field, problem, .. })) => {
                assert!(
                    field.starts_with("change.patches[0].patch["),
                    "{words}: {field}"
                );
                assert!(problem.contains(words), "{words}: {problem}");
            }
            other => panic!("{words}: {other:?}"),
        }
        assert_eq!((host.version(), host.state(None)), before, "{words}");
    }
    host.append(&change(&[doubling_patch(1)], &[])).unwrap();
    let moves = patch("thread", (0..16).map(back_and_forth).collect());
    host.append(&change(&[moves], &[])).unwrap();
    assert!(host.state(None)["thread"]["big"].is_string());
}

/// A history without a state reads and writes nothing more than before.
#[test]
fn a_thread_without_a_state_has_none() {
    let host = StateWorld::new();
    let loaded = host.world.service.load(&host.thread).unwrap();
    assert_eq!(loaded.head.value.state, None);
    let entry = host.world.service.entry(&loaded, 1).unwrap().unwrap();
    assert!(!entry.to_text().contains("\"state"), "{}", entry.to_text());
}
