//! Changes of the state that tools return with their results.

use super::appends::doubling_patch;
use super::{StateWorld, operation, patch, set, state_of};
use crate::runner::fixture::{RunnerFixture, calls};
use serde_json::{Value, json};
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::StepOutcome;

/// Patches and operations of one call.
type CallEdits = (Vec<Value>, Vec<Value>);

/// Returns the results of the open calls with these edits.
pub fn outcomes_with(world: &RunnerFixture, thread: &str, edits: &[CallEdits]) -> StepOutcome {
    let StepOutcome::ToolOutcomes(mut outcomes) = world.outcomes(thread) else {
        panic!("no round is open");
    };
    for (outcome, (patches, operations)) in outcomes.iter_mut().zip(edits) {
        outcome.patches = Some(Value::from(patches.clone()).to_string());
        outcome.operations = Some(Value::from(operations.clone()).to_string());
    }
    StepOutcome::ToolOutcomes(outcomes)
}

/// Runs a round of calls with these edits; returns the state and the results.
fn run_round(edits: &[CallEdits]) -> (Value, Vec<(bool, String)>) {
    let StateWorld { mut world, thread } = StateWorld::new();
    let capable = vec![("read", "{}"); edits.len()];
    world.start(&thread, Some("hi")).unwrap();
    world.submit(&thread, calls(&capable)).unwrap();
    let outcomes = outcomes_with(&world, &thread, edits);
    world.submit(&thread, outcomes.clone()).unwrap();
    world.audit();
    let loaded = world.service.load(&thread).unwrap();
    let version = loaded.head.value.version;
    let entry = world.service.entry(&loaded, version).unwrap().unwrap();
    let entry: Value = serde_json::from_str(&entry.to_text()).unwrap();
    let results = entry["events"].as_array().unwrap().iter();
    let results = results.filter(|event| event["type"] == "tool_result");
    let shown = |event: &Value| {
        let text = event["text"].as_str().unwrap().to_owned();
        (event["failed"] == true, text)
    };
    let results = results.map(shown).collect();
    let now = state_of(&world, &thread, None);
    assert_eq!(state_of(&world, &thread, Some(version)), now);
    (now, results)
}

#[test]
fn calls_of_a_round_change_the_state() {
    let (state, results) = run_round(&[
        (
            vec![set("thread", "a", json!(1))],
            vec![operation("thread", "add", "/n", json!(1))],
        ),
        (
            vec![set("run", "b", json!(2))],
            vec![operation("thread", "add", "/n", json!(2))],
        ),
        (
            vec![],
            vec![operation("thread", "set-add", "/s", json!("x"))],
        ),
    ]);
    assert_eq!(state["thread"], json!({"a": 1, "n": 3, "s": ["x"]}));
    assert_eq!(state["run"], json!({"b": 2}));
    assert!(results.iter().all(|(failed, _)| !failed), "{results:?}");
}

/// Edits of two calls, an operation each, and whether they cross.
fn of_kinds(one: [&str; 2], two: [&str; 2], crosses: bool) -> (CallEdits, CallEdits, bool) {
    let edits = |[op, path]: [&str; 2]| {
        let operation = operation("thread", op, path, json!(1));
        (Vec::new(), vec![operation])
    };
    (edits(one), edits(two), crosses)
}

/// Edits of two calls, and whether they cross.
fn crossing_cases() -> Vec<(CallEdits, CallEdits, bool)> {
    let at = |path: &str| patch("thread", json!([{"op": "add", "path": path, "value": {}}]));
    let test = |path: &str| patch("run", json!([{"op": "test", "path": path, "value": {}}]));
    let count = |path: &str| operation("thread", "add", path, json!(1));
    let run = |path: &str| patch("run", json!([{"op": "add", "path": path, "value": {}}]));
    vec![
        ((vec![at("/a")], vec![]), (vec![at("/a")], vec![]), true),
        (
            (vec![at("/a")], vec![]),
            (vec![at("/a"), at("/a/b")], vec![]),
            true,
        ),
        ((vec![at("/a")], vec![]), (vec![at("/ab")], vec![]), false),
        ((vec![at("/a")], vec![]), (vec![run("/a")], vec![]), false),
        (
            (vec![at("/a")], vec![]),
            (vec![], vec![count("/a/n")]),
            true,
        ),
        (
            (vec![], vec![count("/n")]),
            (vec![], vec![count("/n")]),
            false,
        ),
        ((vec![run("/a")], vec![]), (vec![test("")], vec![]), true),
        // Operations commute if they are of one kind and change one value.
        of_kinds(["max", "/n"], ["add", "/n"], true),
        of_kinds(["max", "/n"], ["min", "/n"], true),
        of_kinds(["max", "/n"], ["max", "/n"], false),
        of_kinds(["min", "/n"], ["min", "/n"], false),
        of_kinds(["max", "/n"], ["add", "/m"], false),
        of_kinds(["set-add", "/s"], ["set-remove", "/s"], true),
        of_kinds(["set-add", "/s"], ["set-add", "/s"], false),
        of_kinds(["set-remove", "/s"], ["set-remove", "/s"], false),
        of_kinds(["set-add", "/s"], ["add", "/s/0"], true),
        of_kinds(["set-add", "/s"], ["set-add", "/s/0"], true),
        ((vec![test("")], vec![]), (vec![test("")], vec![]), false),
        (
            (
                vec![patch(
                    "thread",
                    json!([{"op": "replace", "path": "", "value": {}}]),
                )],
                vec![],
            ),
            (vec![at("/z")], vec![]),
            true,
        ),
    ]
}

/// Symptom: `max` of one call and `add` of another both applied, and the state told by its value in
/// which order. Cause: all operations were said to commute. Fix: those of one kind on one value do.
/// Kind: changes of concurrent calls whose order decides.
#[test]
fn calls_that_change_the_same_place_are_left_out_and_both_are_told() {
    for (one, two, crosses) in crossing_cases() {
        let shown = format!("{one:?} {two:?}");
        let other = (vec![set("thread", "other", json!(1))], vec![]);
        let (state, results) = run_round(&[one, two, other.clone()]);
        // The third call is not touched.
        let whole = shown.contains(r#""path": String(""), "value": Object {}"#) && crosses;
        assert!(
            whole || state["thread"]["other"] == json!(1),
            "{shown}: {state}"
        );
        for (failed, text) in &results[..2] {
            assert_eq!(*failed, crosses, "{shown}: {text}");
            let told = text.contains("call_3_0 (read)") && text.contains("call_3_1 (read)");
            assert_eq!(told, crosses, "{shown}: {text}");
            assert!(
                text.starts_with("read said {}"),
                "the result is kept: {text}"
            );
        }
        if crosses && !whole {
            assert_eq!(state["thread"], json!({"other": 1}), "{shown}");
        }
    }
}

#[test]
fn what_does_not_apply_is_told_and_the_result_is_kept() {
    let wrong = [
        (
            vec![patch("thread", json!([{"op": "remove", "path": "/x"}]))],
            vec![],
        ),
        (vec![json!({"scope": "chain", "patch": []})], vec![]),
        (
            vec![],
            vec![operation("thread", "add", "/ok/n", json!("1"))],
        ),
        (vec![set("thread", "x", json!("y".repeat(70_000)))], vec![]),
        (
            vec![json!({"scope": "tool-call", "call": "call_1_0", "patch": []})],
            vec![],
        ),
    ];
    for edits in wrong {
        let fine = (vec![set("thread", "fine", json!(1))], vec![]);
        let (state, results) = run_round(&[edits.clone(), fine]);
        assert_eq!(state["thread"], json!({"fine": 1}), "{edits:?}");
        assert!(results[0].0 && !results[1].0, "{results:?}");
        assert!(
            results[0].1.contains("[state not changed by this call: "),
            "{results:?}"
        );
        assert!(results[0].1.starts_with("read said {}\n"), "{results:?}");
    }
    let StateWorld { mut world, thread } = StateWorld::new();
    world.start(&thread, Some("hi")).unwrap();
    world.submit(&thread, calls(&[("read", "{}")])).unwrap();
    let StepOutcome::ToolOutcomes(mut outcomes) = world.outcomes(&thread) else {
        panic!("no round is open");
    };
    outcomes[0].patches = Some("{".to_owned());
    world
        .submit(&thread, StepOutcome::ToolOutcomes(outcomes))
        .unwrap();
    world.audit();
    assert_eq!(state_of(&world, &thread, None)["thread"], json!({}));
}

/// Symptom: the result of a tool that had run, and its cost, were lost: recording them ran out of
/// memory. Cause, fix and kind: `a_patch_is_refused_at_the_step_that_makes_too_much`.
#[test]
fn the_result_of_a_call_whose_patch_makes_too_much_is_recorded_with_its_cost() {
    let StateWorld { mut world, thread } = StateWorld::new();
    world.start(&thread, Some("hi")).unwrap();
    world.submit(&thread, calls(&[("read", "{}")])).unwrap();
    let spent = |world: &RunnerFixture| {
        let loaded = world.service.load(&thread).unwrap();
        loaded.head.value.spend_under_cap().get()
    };
    let before = spent(&world);
    let edits = [(vec![doubling_patch(40)], vec![])];
    let StepOutcome::ToolOutcomes(mut outcomes) = outcomes_with(&world, &thread, &edits) else {
        panic!("no round is open");
    };
    outcomes[0].cost = NanoUsd::new(5_000_000);
    world
        .submit(&thread, StepOutcome::ToolOutcomes(outcomes))
        .unwrap();
    world.audit();
    assert_eq!(spent(&world) - before, 5_000_000);
    assert_eq!(state_of(&world, &thread, None)["thread"], json!({}));
    let loaded = world.service.load(&thread).unwrap();
    let version = loaded.head.value.version;
    let entry = world
        .service
        .entry(&loaded, version)
        .unwrap()
        .unwrap()
        .to_text();
    assert!(
        entry.contains("patches[0].patch[9] makes a state of"),
        "{entry}"
    );
}

/// A call may keep something in its own scope: it is gone with the result.
#[test]
fn the_own_scope_of_a_call_is_gone_with_its_result() {
    let own = json!({"scope": "tool-call", "patch": [{"op": "add", "path": "/x", "value": 1}]});
    let (state, results) = run_round(&[(vec![own, set("thread", "a", json!(1))], vec![])]);
    assert_eq!(
        state,
        json!({"thread": {"a": 1}, "run": {}, "tool_call": {}})
    );
    assert!(!results[0].0, "{results:?}");
}
