//! Import of a thread: the bounds that it takes over, and the thread that a killed one leaves.

use super::fixture::CliProject;
use crate::approvals::commands::asking_project;
use cap_std::fs::Dir;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep::authority::{HolderLock, ProjectDir};
use threadkeep::documents::checkpoints::StateFile;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::wit::registry::Draft;

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
        why.contains("not whole") && why.contains("repeat that import"),
        "{why}"
    );
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
    // Sent again it goes on, and once more it is known as done.
    for _ in 0..2 {
        let made = project.json(&["import", "--state", &file, "--id", "k"]);
        assert_eq!(made["exit"], 0, "{made}");
        assert_eq!(made["thread"]["status"], "idle", "{made}");
    }
    assert_eq!(imported_events(&project, "k").len(), 20_001);
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
}

fn open_store(project: &CliProject) -> SqliteStore {
    let directory = ProjectDir::open_ambient(project.path()).unwrap();
    let threads = directory.threads_dir_or_create().unwrap();
    SqliteStore::open(&threads, "registry.db", SqliteOptions::local()).unwrap()
}

/// The events of a thread that were imported, of calls and results without their places.
fn imported_events(project: &CliProject, id: &str) -> Vec<Value> {
    let kinds = [
        "message",
        "tool_use",
        "tool_result",
        "assistant_text",
        "note",
    ];
    let (store, mut start, mut found) = (open_store(project), 1, Vec::new());
    loop {
        let read = store.read_log("history", id, start, 100, false).unwrap();
        let Some(last) = read.last() else {
            return found;
        };
        start = last.position + 1;
        for line in read {
            let mut entry: Value = serde_json::from_str(&line.value).unwrap();
            let events = entry["events"].as_array_mut().map(std::mem::take);
            for mut event in events.into_iter().flatten() {
                event.as_object_mut().unwrap().remove("version");
                event.as_object_mut().unwrap().remove("index");
                found.extend(
                    kinds
                        .iter()
                        .any(|kind| event["type"] == *kind)
                        .then_some(event),
                );
            }
        }
    }
}

/// A file whose history has three parts, with a call at the end of the first and its result at the
/// beginning of the second.
fn state_of_three_parts() -> Value {
    let role = |n: usize| ["user", "assistant"][n % 2];
    let said = |n: usize| json!({"role": role(n), "content": format!("message {n}")});
    let use_block = json!({"type": "tool_use", "id": "a", "name": "read_file", "arguments": "{}"});
    let result = json!({"type": "tool_result", "id": "a", "text": "milk"});
    let mut messages: Vec<Value> = (0..197).map(said).collect();
    messages.push(json!({"role": "assistant", "content": [
        {"type": "text", "text": "I look."}, use_block,
    ]}));
    messages.push(json!({"role": "tool", "content": [result]}));
    messages.push(json!({"role": "assistant", "content": "It is milk."}));
    messages.extend((0..300).map(said));
    json!({
        "thread_id": "three", "directive": null, "version": "1.0.0",
        "saved_at": "2026-02-12T15:30:00Z", "messages": messages,
    })
}

/// Makes an import as far as its commit number `commits`, as a process that is killed after it.
/// Returns false if it has fewer commits.
async fn import_until(project: &CliProject, state: &Value, commits: usize) -> bool {
    let directory = ProjectDir::open_ambient(project.path()).unwrap();
    let threads = directory.threads_dir_or_create().unwrap();
    let file = StateFile::from_bytes(
        state.to_string().as_bytes(),
        "state.json",
        &Dir::open_ambient_dir(project.path(), cap_std::ambient_authority()).unwrap(),
    );
    let history = file.unwrap().to_history(false, &[]).unwrap();
    assert_eq!(history.batches.len(), 3);
    let tenant = crate::component::fixture::tenant(Arc::new(open_store(project)));
    if commits == 0 {
        return true;
    }
    let draft = Draft {
        id: Some("k".to_owned()),
        incomplete: true,
        ..Draft::default()
    };
    let thread = tenant.create(draft).await.unwrap().id;
    let lock = HolderLock::acquire(&threads).unwrap();
    let holder = lock.holder_name(1);
    let now = tenant.context().clock.now();
    let deadline = now.saturating_add(Duration::from_secs(600));
    let mut done = 1;
    if done < commits {
        let held = tenant.open_thread(&thread, &holder, deadline.into()).await;
        let held = held.unwrap();
        done += 1;
        let mut version = held.version;
        for events in history.batches {
            if done == commits {
                break;
            }
            let appended = tenant.append(&thread, Some(held.token), version, events);
            version = appended.await.unwrap().version;
            done += 1;
        }
        if done < commits {
            let closed = tenant.close_thread(&thread, held.token, "idle", None);
            closed.await.unwrap();
            done += 1;
        }
    }
    lock.abandon();
    done == commits
}

/// Symptom: an import that was killed could only be sent again under another id. Fix: the same
/// import finds the thread that it has begun, and goes on behind its last part. Kind: a death after
/// each commit, with a call whose result stands in the next part.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_was_killed_goes_on_under_its_id() {
    let state = state_of_three_parts();
    let reference = CliProject::new();
    assert_eq!(import(&reference, &state, "k")["exit"], 0);
    let whole = imported_events(&reference, "k");
    for commits in 0.. {
        let project = CliProject::new();
        if !import_until(&project, &state, commits).await {
            assert_eq!(commits, 7, "create, open, three parts, close");
            break;
        }
        // One of them finds the dead process by itself.
        if commits % 2 == 1 {
            project.json(&["recover"]);
        }
        for _ in 0..2 {
            let made = import(&project, &state, "k");
            assert_eq!(made["exit"], 0, "{commits}: {made}");
            assert_eq!(made["thread"]["status"], "idle", "{commits}: {made}");
            assert_eq!(project.threads(), 1);
        }
        assert_eq!(imported_events(&project, "k"), whole, "{commits}");
        assert_eq!(project.json(&["audit"])["findings"], json!([]), "{commits}");
        let mut other = state.clone();
        other["messages"][3]["content"] = json!("Not the same.");
        let refused = import(&project, &other, "k");
        assert_eq!(refused["error"]["code"], "exists", "{refused}");
        assert_eq!(imported_events(&project, "k"), whole, "{commits}");
    }
}

/// An import that was begun for another file, or with other bounds, is not gone on with.
#[tokio::test(flavor = "multi_thread")]
async fn a_begun_import_is_that_of_its_file_alone() {
    let state = state_of_three_parts();
    let project = CliProject::new();
    assert!(import_until(&project, &state, 4).await);
    let mut other = state.clone();
    other["messages"][3]["content"] = json!("Not the same.");
    let refused = import(&project, &other, "k");
    assert_eq!(refused["error"]["code"], "exists", "{refused}");
    let mut bounded = state.clone();
    bounded["limits"] = json!({"turns": 3});
    let refused = import(&project, &bounded, "k");
    let words = refused["error"]["message"].to_string();
    assert!(words.contains("its caps is another"), "{refused}");
    assert_eq!(import(&project, &state, "k")["exit"], 0);
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
