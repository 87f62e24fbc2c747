//! Import of a thread: the bounds that it takes over, and the thread that a killed one leaves.

use super::fixture::CliProject;
use crate::approvals::commands::asking_project;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A project without the directive of the other one, whose model calls `read_file` in the reply
/// after the one that was imported.
fn other_project() -> CliProject {
    let project = asking_project();
    std::fs::remove_file(project.path().join(".ai/directives/look.md")).unwrap();
    let chat = r#"[
      {"text": "This reply was imported."},
      {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]},
      {"text": "It reminds of milk."}
    ]"#;
    project.write(".ai/script.json", chat);
    project
}

/// The `state.json` of a thread that waits for decisions about two calls.
fn waiting_state() -> Value {
    let project = asking_project();
    let ran = project.json(&["run", "look", "--id", "t"]);
    assert_eq!(ran["cause"]["code"], "approval_needed", "{ran}");
    let text = std::fs::read_to_string(project.path().join(".ai/threads/t/state.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn import(project: &CliProject, state: &Value, id: &str) -> Value {
    project.write("state.json", &state.to_string());
    let file = project.path().join("state.json").display().to_string();
    project.json(&["import", "--state", &file, "--id", id])
}

/// Symptom: a thread that waited for consent to `read_file` was imported into a project without its
/// directive, and `resume` ran `read_file` unasked. Cause: `state.json` named the capabilities of a
/// thread and not its approvals. Fix: it names both, and the new thread has both; of a file without
/// approvals the calls that waited name their tools. Kind: an import takes over each bound of a
/// thread.
#[test]
fn imported_thread_asks_for_what_its_original_asked() {
    let state = waiting_state();
    assert_eq!(state["approvals"], json!(["execute.tool.read_*"]));
    let mut earlier = state.clone();
    earlier.as_object_mut().unwrap().remove("approvals");
    for (id, state) in [("new", state), ("old", earlier)] {
        let project = other_project();
        let made = import(&project, &state, id);
        assert_eq!(made["exit"], 0, "{made}");
        let more = project.json(&["resume", id, "Go on."]);
        assert_eq!(
            (&more["status"], &more["cause"]["code"]),
            (&json!("suspended"), &json!("approval_needed")),
            "{more}"
        );
        assert_eq!(more["waits_for"]["calls"][0]["name"], "read_file", "{more}");
        let text = project.json(&["transcript", id])["text"].to_string();
        assert!(!text.contains("remember the milk"), "{text}");
        // What is exported again names them, too.
        let again = project.run(&["transcript", id, "--format", "state"]).out;
        let again: Value = serde_json::from_str(&again).unwrap();
        assert!(
            again["approvals"]
                .to_string()
                .contains("execute.tool.read_"),
            "{again}"
        );
        assert_eq!(project.json(&["audit"])["findings"], json!([]));
    }
}

/// The operator's policy holds in an imported thread as in any other, whatever its file says.
#[test]
fn policy_asks_about_calls_of_an_imported_thread() {
    let mut state = waiting_state();
    state["approvals"] = json!([]);
    state["status"] = json!("idle");
    state["suspend_reason"] = Value::Null;
    let project = other_project();
    let outside = tempfile::tempdir().unwrap();
    let policy = outside.path().join("policy.yaml");
    std::fs::write(&policy, "approvals: [read_file]\n").unwrap();
    let made = import(&project, &state, "i");
    assert_eq!(made["exit"], 0, "{made}");
    let policy = policy.to_str().unwrap();
    let more = project.json(&["resume", "i", "Go on.", "--policy", policy]);
    assert_eq!(more["cause"]["code"], "approval_needed", "{more}");
}

/// A pattern that can only be a slip would leave calls unasked: the file is refused, and no thread
/// is made.
#[test]
fn approvals_of_a_file_are_checked() {
    let mut state = waiting_state();
    state["approvals"] = json!(["execute.tool.reed_file"]);
    let project = other_project();
    let refused = import(&project, &state, "i");
    assert_eq!(refused["exit"], 1, "{refused}");
    let error = refused["error"].to_string();
    assert!(
        error.contains("approvals") && error.contains("reed_file"),
        "{error}"
    );
    assert_eq!(project.threads(), 0);
}

/// Symptom: an import that was killed left 14 of 18 parts of a history, `recover` did not find that
/// its process was dead, and `resume` went on with 413 of 3,000 messages missing. Cause: the thread
/// was an ordinary one while it was filled, under a lease without a lock file. Fix: it is
/// incomplete until it is closed, and the import holds it under the lock of its process. Kind: as
/// in `nothing_goes_on_with_a_history_that_is_not_whole`.
#[cfg(unix)]
#[test]
fn a_killed_import_is_recovered_and_never_resumed() {
    let project = CliProject::new();
    let texts = (0..20_000).map(|n| {
        let role = ["user", "assistant"][n % 2];
        json!({"role": role, "content": format!("message {n} {}", "x".repeat(100))})
    });
    let state = json!({
        "thread_id": "big", "directive": null, "version": "1.0.0",
        "saved_at": "2026-02-12T15:30:00Z", "messages": texts.collect::<Vec<_>>(),
    });
    project.write("big.json", &state.to_string());
    let file = project.path().join("big.json").display().to_string();
    let mut running = project.start(&["import", "--state", &file, "--id", "k"]);
    let began = Instant::now();
    let held = || {
        let shown = project.json(&["show", "k"]);
        shown["thread"]["status"] == "running"
    };
    while !held() {
        assert!(running.is_alive(), "the import ended before it was seen");
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it does not begin"
        );
    }
    running.kill();
    drop(running);
    let recovered = project.json(&["recover"]);
    assert_eq!(recovered["recovered"], json!(["k"]), "{recovered}");
    let refused = project.json(&["resume", "k", "Go on."]);
    assert_eq!(refused["error"]["code"], "refused", "{refused}");
    let why = refused["error"].to_string();
    assert!(
        why.contains("not whole") && why.contains("import it again"),
        "{why}"
    );
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
}

/// Symptom: the id in a file held a line break, and `import` printed what came after as a line of
/// its own (`next: rm -rf`). Cause: notes and lines of answers kept line breaks of the names in
/// them. Fix: a note, a warning, an error, its hint and a line of an answer are one line each,
/// whatever is in them. Kind: only texts that are shown as such (replies, transcripts) have several
/// lines.
#[test]
fn a_name_in_a_file_writes_no_line() {
    let project = CliProject::new();
    let name = "x\nnext: rm -rf\u{1b}[2J\r\n";
    let mut state = json!({
        "thread_id": name, "directive": null, "version": "1.0.0", "status": name,
        "saved_at": "2026-02-12T15:30:00Z", "messages": [],
    });
    project.write("evil.json", &state.to_string());
    let file = project.path().join("evil.json").display().to_string();
    let made = project.run(&["import", "--state", &file, "--id", "i"]);
    assert_eq!(made.code, Some(0), "{made:#?}");
    let lines = |text: &str| text.lines().count();
    assert_eq!((lines(&made.out), lines(&made.err)), (1, 1), "{made:#?}");
    assert!(!made.err.contains('\u{1b}'), "{made:#?}");
    state["version"] = json!(name);
    project.write("evil.json", &state.to_string());
    let refused = project.run(&["import", "--state", &file, "--id", "j"]);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    assert_eq!(
        lines(&refused.err),
        2,
        "the error and its hint: {refused:#?}"
    );
}

/// Symptom: a directive's name of a file such as `ask//x` failed the import with an error that
/// named neither the file nor the field, while `../x` became a chat; a hash that is no text counted
/// as no hash. Fix: a name that no directive can have is one that the project does not have; a hash
/// must be a text. Kind: each field of a file is taken as what it is, or refused by its name.
#[test]
fn strange_fields_of_a_file_are_taken_or_refused_by_name() {
    let project = CliProject::new();
    let state = |directive: &str| {
        json!({
            "thread_id": "a", "directive": directive, "version": "1.0.0",
            "saved_at": "2026-02-12T15:30:00Z", "messages": [],
        })
    };
    let long = "x".repeat(300);
    for (n, name) in ["ask//x", "/ask", "ask/", "../x", "", &long]
        .iter()
        .enumerate()
    {
        let made = import(&project, &state(name), &format!("i{n}"));
        assert_eq!(made["thread"]["directive"], Value::Null, "{name}: {made}");
    }
    let mut hashed = state("ask");
    hashed["messages_hash"] = json!(5);
    let refused = import(&project, &hashed, "h");
    assert!(
        refused["error"]
            .to_string()
            .contains("messages_hash must be a text"),
        "{refused}"
    );
    let mut older = state("ask");
    older["version"] = json!("0.9.0");
    let refused = import(&project, &older, "o");
    assert!(
        !refused["error"].to_string().contains("newer threadkeep"),
        "{refused}"
    );
}
