//! `recover` and `repair`, and that every command answers with one document.

use super::fixture::Project;
use serde_json::json;

#[test]
fn a_killed_run_is_recovered_at_once_and_goes_on_in_place() {
    let project = Project::new();
    let running = project.unending("lost");
    running.kill();
    assert_eq!(running.end().code, None);
    assert_eq!(
        project.status("lost"),
        "running",
        "nobody has said otherwise yet"
    );
    let busy = project.json(&["resume", "lost"]);
    assert_eq!(busy["exit"], 4);
    assert!(
        busy["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("its process is dead: `threadkeep recover`")
    );
    let found = project.run(&["doctor"]);
    assert!(
        found.out.contains("mend: threadkeep recover"),
        "{}",
        found.out
    );
    assert_eq!(
        project.json(&["recover"]),
        json!({"recovered": ["lost"], "exit": 0})
    );
    assert_eq!(
        project.json(&["recover"]),
        json!({"recovered": [], "exit": 0})
    );
    let shown = project.json(&["show", "lost"]);
    assert_eq!(shown["thread"]["cause"]["code"], "recovered");
    assert_eq!(
        project.json(&["doctor"])["missing"],
        json!([]),
        "lock swept, documents up to date"
    );
    let resumed = project.json(&["resume", "lost"]);
    assert_eq!(
        (&resumed["status"], &resumed["thread_id"]),
        (&json!("completed"), &json!("lost"))
    );
}

#[test]
fn a_holder_that_is_named_as_dead_is_believed() {
    let project = Project::new();
    let running = project.unending("far");
    let holder = project.json(&["show", "far"])["thread"]["run"]["holder"].clone();
    let holder = holder.as_str().expect("somebody holds it");
    assert_eq!(
        project.json(&["recover", "--dead", "nobody/1"])["recovered"],
        json!([])
    );
    assert_eq!(
        project.json(&["recover", "--dead", holder])["recovered"],
        json!(["far"])
    );
    let ran = running.end();
    assert_eq!(ran.code, Some(4), "it was fenced: {ran:#?}");
    assert!(ran.err.contains("held by somebody else now"), "{}", ran.err);
    assert_eq!(project.status("far"), "suspended");
}

#[test]
fn documents_are_written_anew() {
    let project = Project::new();
    project.finished("a");
    project.finished("b");
    let transcript = project.path().join(".ai/threads/a/transcript.md");
    let before = std::fs::read_to_string(&transcript).unwrap();
    std::fs::remove_file(&transcript).unwrap();
    project.write(".ai/threads/b/transcript.jsonl", "somebody edited this\n");
    let found = project.json(&["doctor"]);
    let missing = found["missing"].to_string();
    assert!(
        missing.contains("threadkeep repair a") && missing.contains("threadkeep repair b"),
        "{missing}"
    );
    assert_eq!(found["exit"], 0, "something can still be run");
    assert_eq!(
        project.json(&["repair", "A"]),
        json!({"repaired": ["a"], "failed": [], "exit": 0})
    );
    assert_eq!(std::fs::read_to_string(&transcript).unwrap(), before);
    let all = project.json(&["repair"]);
    assert_eq!(all["repaired"].as_array().unwrap().len(), 2);
    assert_eq!(project.json(&["doctor"])["missing"], json!([]));
    let person = project.run(&["repair", "b"]);
    assert_eq!((person.out.as_str(), person.code), ("b\n", Some(0)));
    assert!(
        person.err.contains("the documents of 1 thread were"),
        "{}",
        person.err
    );
}

/// The store is what counts: a run whose documents cannot be written is done, and says so.
#[test]
fn documents_that_cannot_be_written_are_a_warning() {
    let project = Project::new();
    project.write(".ai/threads/w", "a file where the directory would be");
    let ran = project.run(&[
        "run", "describe", "--input", "file=x", "--id", "w", "--json",
    ]);
    assert_eq!(ran.json()["status"], "completed");
    assert!(
        ran.err
            .starts_with("warning: the documents of w are not up to date"),
        "{}",
        ran.err
    );
    let repaired = project.json(&["repair", "w"]);
    assert_eq!(repaired["exit"], 1);
    assert!(
        repaired["failed"][0].as_str().unwrap().starts_with("w: "),
        "{repaired}"
    );
}

#[test]
fn every_command_answers_with_one_document() {
    let project = Project::new();
    project.finished("one");
    for (arguments, field) in [
        (&["run", "describe", "--input", "file=x"][..], "thread_id"),
        (&["run", "nothing"], "error"),
        (&["resume", "one"], "error"),
        (&["list"], "threads"),
        (&["show", "one"], "thread"),
        (&["transcript", "one"], "text"),
        (&["raise", "one", "--turns", "9"], "error"),
        (&["cancel", "one"], "error"),
        (&["kill", "one"], "error"),
        (&["recover"], "recovered"),
        (&["repair"], "repaired"),
        (&["doctor"], "sections"),
        (&["demo"], "run"),
        (&["--version"], "version"),
        (&["--help"], "help"),
        (&[], "error"),
        (&["frobnicate"], "error"),
    ] {
        let ran = project.run(&[arguments, &["--json"]].concat());
        assert!(ran.json().get(field).is_some(), "{arguments:?}: {ran:#?}");
        assert_eq!(ran.err, "", "{arguments:?}");
    }
}
