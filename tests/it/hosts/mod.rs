//! Hosts that nobody wrote for Threadkeep: Python and Node play the same scenario as the native
//! host, over storage of their own, and print the same answers byte for byte.
//!
//! The scenario is `tests/hosts/scenario.jsonl`, with what must stand in its answers.

mod foreign;
mod imports;
mod native;
mod regressions;
mod scenario;
mod values;

use native::{NativePlayer, ScenarioAnswer};
use serde_json::Value;
use std::sync::OnceLock;

/// The native host's answers: the component is compiled and played once for all tests.
fn native_answers() -> &'static [ScenarioAnswer] {
    static ANSWERS: OnceLock<Vec<ScenarioAnswer>> = OnceLock::new();
    ANSWERS.get_or_init(|| NativePlayer::new().play(&scenario::read_scenario()))
}

/// Compares what a host printed with the native host's answers, line by line.
fn assert_same_lines(host: &str, printed: &str) {
    let script = scenario::read_scenario();
    let mut lines = printed.lines();
    for ScenarioAnswer { line, answer } in native_answers() {
        let native = values::canonical_text(answer);
        let found = lines.next().unwrap_or("(nothing)");
        assert!(
            found == native,
            "{host} answers to line {} of the scenario, {}\n{host}: {found}\nnative: {native}",
            line + 1,
            script[*line],
        );
    }
    assert_eq!(lines.next(), None, "{host} prints more");
}

#[test]
fn the_native_host_answers_what_the_scenario_expects() {
    let script = scenario::read_scenario();
    let mut problems = Vec::new();
    let mut expectations = 0;
    for ScenarioAnswer { line, answer } in native_answers() {
        let expected = &script[*line]["expect"];
        // What a model was sent is compared between the hosts alone.
        if expected.is_null() || answer.get("asked").is_some() {
            continue;
        }
        expectations += 1;
        let holds = scenario::holds(expected, answer);
        let pending = script[*line]["pending"].as_str();
        match (holds, pending) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(why)) => problems.push(format!(
                "line {}: what was pending ({why}) has come: take the mark away",
                line + 1
            )),
            (false, None) => problems.push(format!(
                "line {}: expected {expected}, the answer is {answer}",
                line + 1
            )),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(
        expectations > 50,
        "only {expectations} lines expect something"
    );
}

#[test]
fn python_prints_the_same_answers() {
    if let Some(printed) = foreign::play_in_python() {
        assert_same_lines("Python", &printed);
    }
}

#[test]
fn node_prints_the_same_answers() {
    if let Some(printed) = foreign::play_in_node() {
        assert_same_lines("Node", &printed);
    }
}

/// Each error, which every host prints alike, has a sentence for a person and details for a
/// program.
#[test]
fn every_error_of_the_scenario_can_be_read_by_a_person_and_by_a_program() {
    let mut kinds = std::collections::BTreeSet::new();
    for ScenarioAnswer { answer, .. } in native_answers() {
        let Some(error) = answer.get("err") else {
            continue;
        };
        let text = |name: &str| error[name].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text("message").contains(' '), "{answer}");
        let details: Value = serde_json::from_str(text("details")).unwrap();
        assert!(details.is_object(), "{answer}");
        kinds.insert(text("kind").to_owned());
    }
    assert!(kinds.len() >= 9, "only {kinds:?}");
}

/// A subset, a text and a list that differ are found.
#[test]
fn expectations_can_fail() {
    let found: Value = serde_json::json!({"ok": {"list": [1, 2], "text": "one two",
        "json": r#"{"a": 1, "b": 2}"#}});
    for (expected, holds) in [
        (r#"{"ok": {"list": [1, 2]}}"#, true),
        (r#"{"ok": {"list": [1]}}"#, false),
        (r#"{"ok": {"text": "...two"}}"#, true),
        (r#"{"ok": {"text": "two"}}"#, false),
        (r#"{"ok": {"absent": null}}"#, true),
        (r#"{"ok": {"text": null}}"#, false),
        (r#"{"err": {}}"#, false),
        (r#"{"ok": {"list": [{"$most": 1}, {"$most": 2}]}}"#, true),
        (r#"{"ok": {"list": [{"$most": 0}, 2]}}"#, false),
        (r#"{"ok": {"text": {"$most": 0}}}"#, false),
        (r#"{"ok": {"json": {"$json": {"a": 1}}}}"#, true),
        (r#"{"ok": {"json": {"$json": {"a": 2}}}}"#, false),
        (r#"{"ok": {"text": {"$json": {}}}}"#, false),
    ] {
        let expected = serde_json::from_str(expected).unwrap();
        assert_eq!(scenario::holds(&expected, &found), holds, "{expected}");
    }
}
