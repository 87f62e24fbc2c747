//! Mistakes and traps of new users: advice that does not help, missing messages, and slips that
//! went unreported.

use super::fixture::CliProject;
use serde_json::{Value, json};
use threadkeep_core::thread::ThreadStatus;
use threadkeep_tests::binary;

const HELLO: &str = r#"{"type":"message","role":"user","content":"Hello."}"#;

fn run_with_input(project: &CliProject, arguments: &[&str], input: &str) -> binary::ProcessOutput {
    binary::run_with_input(project.command(arguments), input)
}

fn error(project: &CliProject, arguments: &[&str]) -> Value {
    project.json(arguments)["error"].clone()
}

/// Symptom: `next: threadkeep chat talk` for a chat that had ended, or had reached a cap, and
/// refuses it. Cause: the hint was printed whatever the outcome of the last run.
#[test]
fn a_chat_that_cannot_go_on_is_not_suggested() {
    let project = CliProject::new();
    let capped = run_with_input(&project, &["chat", "--id", "capped", "--turns", "0"], "hi");
    assert!(
        capped
            .err
            .contains("next    threadkeep raise capped --turns N"),
        "{}",
        capped.err
    );
    let slow = ["chat", "--id", "killed", "--provider", "scripted:slow.json"];
    let chat = binary::start_with_input(project.command(&slow), "hi\n");
    chat.await_err("a reply is under way");
    assert_eq!(project.run(&["kill", "killed"]).out, "killed is killed\n");
    let killed = chat.wait_for_end();
    assert!(killed.err.contains("status  killed"), "{}", killed.err);
    for ran in [capped, killed] {
        assert!(!ran.err.contains("next: threadkeep chat"), "{}", ran.err);
    }
}

/// Symptom: after a run in memory the command told how to go on with a thread that was gone.
#[test]
fn nothing_is_suggested_that_memory_has_lost() {
    let project = CliProject::new();
    let memory = |arguments: &[&str], input: &str| {
        run_with_input(
            &project,
            &[arguments, &["--store", "memory"]].concat(),
            input,
        )
    };
    let run = [
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--turns",
        "1",
    ];
    for (arguments, input) in [(&run[..], ""), (&["chat"], "hi"), (&["create"], "")] {
        let ran = memory(arguments, input);
        assert!(
            ran.err.contains("was kept in memory and is gone now"),
            "{}",
            ran.err
        );
        assert!(!ran.err.contains("next: threadkeep"), "{}", ran.err);
        assert!(!ran.err.contains("threadkeep raise"), "{}", ran.err);
    }
    project.finish_thread("kept");
    for arguments in [&["show", "kept"][..], &["list"], &["resume", "kept"]] {
        let ran = memory(arguments, "");
        assert!(
            ran.err.contains("--store memory begins empty"),
            "{arguments:?}: {}",
            ran.err
        );
    }
}

/// Symptom: with `THREADKEEP_TOKEN` still set for one thread, an append to another was fenced, or
/// went through. Cause: the first token of every thread is 1. Fix: what `open` prints names its
/// thread.
#[test]
fn token_names_its_thread() {
    let project = CliProject::new();
    for id in ["one", "two"] {
        project.json(&["create", "--id", id]);
    }
    let token = project.run(&["open", "one"]).out.trim().to_owned();
    assert_eq!(token, "one#1");
    assert_eq!(project.json(&["open", "two"])["token"], "two#1");
    let append = |thread: &str, token: &str| {
        let mut command = project.command(&["append", thread, "--json"]);
        command.env("THREADKEEP_TOKEN", token);
        binary::run_with_input(command, HELLO).json()
    };
    let other = append("two", &token);
    assert_eq!(
        (&other["error"]["code"], &other["exit"]),
        (&json!("usage"), &json!(2))
    );
    assert_eq!(other["error"]["message"], "the token one#1 is not of two");
    let bare = append("two", "1");
    assert!(
        bare["error"]["message"]
            .as_str()
            .unwrap()
            .contains("THREAD#NUMBER"),
        "{bare}"
    );
    assert_eq!(
        project.json(&["show", "two"])["thread"]["version"],
        1,
        "nothing was written"
    );
    assert_eq!(append("ONE", &token)["status"], "running");
    let closed = ["close", "one", "idle", "--token"].to_vec();
    let wrong = project.json(&[closed.clone(), vec!["two#1"]].concat());
    assert_eq!(wrong["error"]["code"], "usage");
    assert_eq!(
        project.json(&[closed, vec!["one#1"]].concat())["status"],
        "idle"
    );
}

/// Symptom: `cancel` said that the thread ends when its step is done, though it ended at once, and
/// did not say what the step had cost.
#[test]
fn a_cancel_says_what_it_does_and_the_run_what_it_cost() {
    let project = CliProject::new();
    let running = project.start_unending("away");
    let cancelled = project.run(&["cancel", "away"]);
    assert_eq!(
        cancelled.out,
        "away ends: a model call under way is dropped by the process that runs it, if that is the \
         native program; tools finish first\n"
    );
    assert_eq!(cancelled.code, Some(0));
    let ran = running.wait_for_end();
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    let said = "no usage was reported for one call: 0.";
    assert!(ran.err.contains(said), "{}", ran.err);
    project.json(&["create", "--id", "own"]);
    project.json(&["open", "own"]);
    let own = project.run(&["cancel", "own"]);
    assert_eq!(
        own.out,
        "own ends when the loop that holds it appends or closes\n"
    );
    let held = run_with_input(
        &project,
        &["append", "own", "--token", "own#1", "--json"],
        HELLO,
    )
    .json();
    assert_eq!(held["status"], "cancelled", "{held}");
    let lost = project.start_unending("lost");
    lost.kill();
    lost.wait_for_end();
    let dead = project.run(&["cancel", "lost"]);
    assert!(
        dead.err.contains("is dead: `threadkeep recover` ends it"),
        "{}",
        dead.err
    );
    project.json(&["recover"]);
    assert_eq!(project.status("lost"), "cancelled");
}

/// Symptom: an error named `events[1]` of a file of ten lines, most of which were empty.
#[test]
fn a_wrong_event_is_named_by_its_line() {
    let project = CliProject::new();
    project.json(&["create", "--id", "c"]);
    let input = format!("\n{HELLO}\n\n\n{{\"type\": \"mesage\"}}\n");
    let refused = run_with_input(&project, &["append", "c"], &input);
    assert!(
        refused
            .err
            .contains("line 5 of standard input: type \"mesage\""),
        "{}",
        refused.err
    );
}

/// Symptom: a capability that grants nothing was accepted unless it nearly matched the name of a
/// tool, and one beside a directive was ignored.
#[test]
fn a_capability_that_would_grant_nothing_is_refused() {
    let project = CliProject::new();
    for (arguments, words) in [
        (
            &["create", "--capability", "execute.tool.write_file"][..],
            "grants no tool",
        ),
        (&["chat", "--capability", "read_*"], "grants no tool"),
        (
            &["chat", "--capability", "read_file"],
            "grants no tool that there is",
        ),
        (
            &[
                "create",
                "describe",
                "--input",
                "file=x",
                "--capability",
                "execute.tool.*",
            ],
            "is for a chat: describe names its own",
        ),
    ] {
        let refused = error(&project, arguments);
        assert_eq!(refused["code"], "invalid", "{arguments:?}: {refused}");
        assert!(
            refused["message"].as_str().unwrap().contains(words),
            "{arguments:?}: {refused}"
        );
    }
    assert!(!project.exists(".ai/threads"));
    let all = project.json(&["create", "--capability", "execute.tool.*"]);
    assert_eq!(all["exit"], 0, "{all}");
}

#[test]
fn mistakes_are_reported_with_working_remedies() {
    let project = CliProject::new();
    project.finish_thread("done");
    for status in ThreadStatus::ALL {
        assert_eq!(
            project.json(&["list", "--status", status.as_str()])["exit"],
            0,
            "{status}"
        );
    }
    let wrong = error(&project, &["list", "--status", "done"]);
    assert!(
        wrong["message"]
            .as_str()
            .unwrap()
            .contains("created, running, waiting"),
        "{wrong}"
    );
    let title = error(&project, &["title", "done"]);
    assert!(
        title["hint"]
            .as_str()
            .unwrap()
            .contains("threadkeep title <THREAD> --none"),
        "{title}"
    );
    let exists = error(&project, &["create", "--id", "DONE"]);
    assert!(
        exists["hint"]
            .as_str()
            .unwrap()
            .contains("`threadkeep show DONE`"),
        "{exists}"
    );
    project.json(&[
        "run", "describe", "--input", "file=x", "--id", "one", "--turns", "1",
    ]);
    let shown = project.run(&["show", "one"]).out;
    assert!(
        shown.contains("for 1 turn,") && shown.contains("limits         1 turn,"),
        "{shown}"
    );
}
