//! The command `audit` as people and programs use it.

use crate::cli::fixture::CliProject;
use serde_json::json;

fn plant(project: &CliProject, sql: &str) {
    let store = project.path().join(".ai/threads/registry.db");
    let shell = rusqlite::Connection::open(store).unwrap();
    shell.execute_batch(sql).unwrap();
}

#[test]
fn a_sound_project_is_said_to_be_so_in_one_line() {
    let project = CliProject::new();
    let empty = project.run(&["audit"]);
    assert_eq!(
        (empty.code, empty.out.as_str()),
        (Some(0), "0 threads, 0 entries, no findings\n")
    );
    assert!(empty.err.contains("there is no store yet"), "{}", empty.err);
    assert!(!project.exists(".ai/threads"), "nothing is made");
    project.finish_thread("a");
    project.finish_thread("b");
    let audited = project.json(&["audit"]);
    assert_eq!(
        (&audited["threads"], &audited["findings"]),
        (&json!(2), &json!([]))
    );
    assert_eq!(
        (&audited["exit"], &audited["unsettled"]),
        (&json!(0), &json!(0))
    );
    let person = project.run(&["audit"]);
    let entries = &audited["entries"];
    assert_eq!(
        person.out,
        format!("2 threads, {entries} entries, no findings\n")
    );
}

#[test]
fn what_is_wrong_is_named_with_what_to_do() {
    let project = CliProject::new();
    project.finish_thread("a");
    project.finish_thread("b");
    let spent =
        "UPDATE record_chain SET value = json_set(value, '$.account.spent', 1) WHERE name = 'b'";
    plant(&project, spent);
    let said = project.run(&["audit"]);
    assert_eq!(said.code, Some(1));
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "b: ledger (5)",
            "  expected  spent 310000",
            "  found     spent 1"
        ]
    );
    assert!(
        lines[3].starts_with("  to do     the history tells"),
        "{}",
        said.out
    );
    assert!(
        lines.last().unwrap().ends_with(", 1 finding"),
        "{}",
        said.out
    );
    let document = project.json(&["audit"]);
    assert_eq!(document["exit"], 1);
    let finding = &document["findings"][0];
    assert_eq!(
        (
            &finding["thread_id"],
            &finding["invariant"],
            &finding["name"]
        ),
        (&json!("b"), &json!(5), &json!("ledger"))
    );
    // A record that cannot be read, and a document that was changed from outside.
    plant(
        &project,
        "UPDATE record_head SET value = x'01ff' WHERE name = 'b'",
    );
    project.write(".ai/threads/a/transcript.md", "something else");
    let document = project.json(&["audit"]);
    let named: Vec<_> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            (
                finding["thread_id"].as_str().unwrap(),
                finding["invariant"].as_u64().unwrap(),
            )
        })
        .collect();
    assert!(
        named.contains(&("b", 1)) && named.contains(&("a", 8)),
        "{document:#}"
    );
}

/// Audits a project while a run in it goes on: neither disturbs the other.
#[test]
fn a_run_goes_on_while_it_is_audited() {
    let project = CliProject::new();
    let running = project.start_unending("slow");
    for _ in 0..3 {
        let audited = project.json(&["audit"]);
        assert_eq!(
            (&audited["findings"], &audited["threads"]),
            (&json!([]), &json!(1))
        );
    }
    assert_eq!(project.json(&["cancel", "slow"])["exit"], 0);
    running.wait_for_end();
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
}
