//! The state of a thread on the command line: `append` and `state`.

use super::fixture::CliProject;
use serde_json::{Value, json};
use threadkeep_tests::binary::{self, RunningProcess};

fn append(project: &CliProject, lines: &str) -> Value {
    let command = project.command(&["append", "shop", "--json"]);
    binary::run_with_input(command, lines).json()
}

#[test]
fn a_script_changes_the_state_and_reads_it_at_a_version() {
    let project = CliProject::new();
    project.json(&["create", "--id", "shop"]);
    let lines = concat!(
        r#"{"snapshot": {"thread": {"cart": [], "total": 0}}}"#,
        "\n\n",
        r#"{"scope": "thread", "patch": [{"op": "add", "path": "/cart/-", "value": "tea"}]}"#,
        "\n",
        r#"{"scope": "thread", "op": "add", "path": "/total", "value": 350}"#,
        "\n",
        r#"{"type": "message", "role": "user", "content": "One tea."}"#,
    );
    assert_eq!(append(&project, lines)["version"], 1);
    let add = r#"{"scope": "thread", "op": "add", "path": "/total", "value": 50}"#;
    assert_eq!(append(&project, add)["version"], 2);
    let thread = |total: u64| json!({"cart": ["tea"], "total": total});
    let now = project.json(&["state", "shop"]);
    assert_eq!(
        (&now["state"]["thread"], &now["version"]),
        (&thread(400), &json!(2))
    );
    let before = project.json(&["state", "shop", "--at", "1"]);
    assert_eq!(before["state"]["thread"], thread(350));
    let printed = project.run(&["state", "shop"]).out;
    assert_eq!(
        serde_json::from_str::<Value>(&printed).unwrap(),
        now["state"]
    );
    let shown = project.run(&["show", "shop"]).out;
    assert!(
        shown.contains("bytes, last changed at version 2"),
        "{shown}"
    );
    assert_eq!(project.json(&["audit"])["exit"], 0);
}

/// Symptom, cause, fix and kind are those of
/// `the_same_append_of_another_caller_is_no_repetition`, here with processes.
#[test]
fn the_same_lines_of_several_processes_all_count() {
    let project = CliProject::new();
    project.json(&["create", "--id", "shop"]);
    let add = r#"{"scope": "thread", "op": "add", "path": "/n", "value": 1}"#;
    let append = |arguments: &[&str]| {
        let arguments = [&["append", "shop", "--json"], arguments].concat();
        binary::start_with_input(project.command(&arguments), add)
    };
    let exits = |processes: Vec<RunningProcess>| {
        let ended = processes.into_iter().map(|one| one.wait_for_end().json());
        let mut exits: Vec<_> = ended.map(|answer| answer["exit"].clone()).collect();
        exits.sort_by_key(Value::as_u64);
        exits
    };
    let count = || project.json(&["state", "shop"])["state"]["thread"]["n"].clone();
    assert_eq!(exits((0..6).map(|_| append(&[])).collect()), vec![0; 6]);
    assert_eq!(count(), 6);
    // Of two that expect the same version one wins.
    let both = (0..2).map(|_| append(&["--expected", "6"])).collect();
    assert_eq!(exits(both), [0, 4]);
    assert_eq!(count(), 7);
    // So it is with the token of a lease: two processes may have it.
    let token = project.json(&["open", "shop"])["token"].clone();
    let token = token.as_str().expect("a token");
    let held = (0..4).map(|_| append(&["--token", token])).collect();
    assert_eq!(exits(held), vec![0; 4]);
    assert_eq!(count(), 11);
    assert_eq!(project.json(&["audit"])["exit"], 0);
}

#[test]
fn lines_that_do_not_apply_are_named() {
    let project = CliProject::new();
    project.json(&["create", "--id", "shop"]);
    for (lines, expected) in [
        (
            concat!(
                "\n",
                r#"{"scope": "thread", "patch": [{"op": "remove", "path": "/x"}]}"#
            ),
            "line 2 of standard input: patch[0]",
        ),
        (
            r#"{"scope": "all", "op": "add", "path": "/x", "value": 1}"#,
            "line 1 of standard input: scope",
        ),
        (
            r#"{"snapshot": {"all": {}}}"#,
            "line 1 of standard input: snapshot.all",
        ),
        (
            "{\"snapshot\": {}}\n{\"snapshot\": {}}",
            "lines 1 and 2 of standard input",
        ),
        (r#"{"value": 1}"#, "line 1 of standard input"),
    ] {
        let refused = append(&project, lines);
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{lines}: {refused}");
    }
    let wrong = project.json(&["state", "shop", "--at", "3"]);
    assert_eq!(wrong["error"]["code"], "invalid", "{wrong}");
}
