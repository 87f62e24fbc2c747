//! Environments that fail a command: a full disk, a closed pipe, a link in the store's place, other
//! writers.

use super::fixture::CliProject;
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::process::Command;
use threadkeep_tests::binary::{self, ProcessOutput};

const HELLO: &str = r#"{"type":"message","role":"user","content":"Hello."}"#;

/// A model that writes so slowly that time is what its calls are charged by.
const SLOW_MODELS: &str = r#"
providers: {local: {wire: scripted, file: script.json}}
models:
  tiny: {provider: local, window: 32000, output: 1000, rate: 10,
      prices: {input: "1.00", output: "2.00"}}
tiers: {default: tiny}
"#;

/// Parallel appends: more than would all have succeeded without a version before the fix.
const APPENDS: usize = 8;

fn to_full_disk(project: &CliProject, arguments: &[&str]) -> ProcessOutput {
    let full = File::options().write(true).open("/dev/full");
    let mut command = project.command(arguments);
    command.stdout(full.expect("Linux has one"));
    binary::run_to_end(command)
}

/// Symptom: exit code 0 with standard output on a full disk, and the token of `open` was lost.
/// Cause: every failed write counted as a reader that had gone away.
#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let project = CliProject::new();
    project.finish_thread("one");
    project.json(&["create", "--id", "mine"]);
    for arguments in [
        &["create"][..],
        &["list", "--json"],
        &["run", "describe", "--input", "file=notes.txt"],
        &["transcript", "one"],
        &["--help"],
        &["--version", "--json"],
    ] {
        let ran = to_full_disk(&project, arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {ran:#?}");
        for words in [
            "error: standard output cannot be written",
            "threadkeep list",
        ] {
            assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
        }
    }
    let open = to_full_disk(&project, &["open", "mine", "--json"]);
    assert_eq!(open.code, Some(1), "{open:#?}");
    let shown = project.json(&["show", "mine"]);
    let holder = shown["thread"]["run"]["holder"]
        .as_str()
        .expect("it is held");
    let ends = format!("`threadkeep recover --dead {holder}`");
    assert!(open.err.contains(&ends), "{}", open.err);
    let recovered = project.json(&["recover", "--dead", holder]);
    assert_eq!(
        recovered["recovered"],
        json!(["mine"]),
        "what was said helps"
    );
}

#[test]
fn a_closed_pipe_is_quiet() {
    let project = CliProject::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = project.command(&["--help"]);
    command.stdout(writer);
    let ran = binary::run_to_end(command);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:#?}");
}

/// Symptom: `doctor` hung where the store is a pipe, and found nothing missing where the store, or
/// the directory of locks, is a link; `list` reported that there was no store yet. Cause: links
/// were followed before anything was checked.
#[test]
fn foreign_objects_at_store_and_locks_are_named() {
    for (place, kind) in [
        ("registry.db", "pipe"),
        ("registry.db", "link"),
        ("registry.db", "link to nowhere"),
        ("locks.d", "link"),
        ("locks.d", "file"),
    ] {
        for finished in [false, true] {
            let project = CliProject::new();
            match finished {
                true => project.finish_thread("one"),
                false => project.write(".ai/threads/none", ""),
            }
            let what = format!("{kind} for {place}, finished: {finished}");
            plant(&project, place, kind);
            let found = project.json(&["doctor"]);
            assert_eq!(
                (&found["exit"], &found["works"]),
                (&json!(1), &json!(false)),
                "{what}"
            );
            let missing = found["missing"].to_string();
            assert!(missing.contains(place), "{what}: {missing}");
            let run = project.json(&["run", "describe", "--input", "file=notes.txt"]);
            assert!(
                run["error"]["message"].to_string().contains(place),
                "{what}: {run}"
            );
            if place == "registry.db" {
                let listed = project.run(&["list"]);
                assert!(
                    listed.err.contains(place) && !listed.err.contains("no store yet"),
                    "{what}"
                );
                assert_eq!(listed.code, Some(1), "{what}");
            }
        }
    }
}

/// Replaces a store or directory with something else; the original is put aside.
fn plant(project: &CliProject, place: &str, kind: &str) {
    let (threads, aside) = (
        project.path().join(".ai/threads"),
        project.path().join("aside"),
    );
    let at = threads.join(place);
    std::fs::create_dir_all(&aside).expect("made");
    let there = std::fs::rename(&at, aside.join(place)).is_ok();
    if !there && place == "locks.d" {
        std::fs::create_dir(aside.join(place)).expect("made");
    } else if !there {
        std::fs::write(aside.join(place), "").expect("written");
    }
    match kind {
        "pipe" => {
            let made = Command::new("mkfifo").arg(&at).status();
            assert!(made.is_ok_and(|status| status.success()));
        }
        "link" => symlink(aside.join(place), &at).expect("linked"),
        "link to nowhere" => symlink("nowhere", &at).expect("linked"),
        _ => std::fs::write(&at, "").expect("written"),
    }
}

/// Symptom: of six parallel appends without `--expected` three were a conflict, though the help
/// says that the newest version is meant.
#[test]
fn appends_without_a_version_do_not_conflict() {
    let project = CliProject::new();
    project.json(&["create", "--id", "talk"]);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..APPENDS)
            .map(|number| {
                // Equal words at the same version would count as a repeat of one append.
                let event = HELLO.replace("Hello.", &format!("Hello {number}."));
                let project = &project;
                scope.spawn(move || {
                    binary::run_with_input(project.command(&["append", "talk"]), &event)
                })
            })
            .collect();
        for worker in workers {
            let ran = worker.join().expect("it runs");
            assert_eq!(ran.code, Some(0), "{ran:#?}");
        }
    });
    let shown = project.json(&["show", "talk", "--events", "100"]);
    assert_eq!(
        shown["events"].as_array().map(Vec::len),
        Some(APPENDS),
        "{shown}"
    );
    let stale = binary::run_with_input(
        project.command(&["append", "talk", "--expected", "1", "--json"]),
        HELLO,
    );
    let stale = stale.json();
    assert_eq!(stale["error"]["code"], "conflict", "{stale}");
    let hint = stale["error"]["hint"].as_str().expect("what to do");
    assert!(hint.contains("threadkeep show talk"), "{hint}");
}

/// A process is killed in the middle of a call and found an hour later: its call is charged until
/// 20 s after its last sign, and not for the hour. (The hour is taken off the times that it wrote.)
#[test]
fn a_killed_call_is_charged_until_soon_after_its_last_sign() {
    let project = CliProject::new();
    project.write(".ai/config/models.yaml", SLOW_MODELS);
    let running = project.start_unending("gone");
    running.kill();
    drop(running.wait_for_end());
    let store = project.path().join(".ai/threads/registry.db");
    let store = rusqlite::Connection::open(store).expect("it is there");
    for (record, time) in [
        ("head", "$.hold.basis.since.seconds"),
        ("head", "$.step.started.seconds"),
        ("partial", "$.time.seconds"),
    ] {
        let hour = format!(
            "UPDATE record_{record} SET value = \
             json_set(value, '{time}', json_extract(value, '{time}') - 3600) \
             WHERE name = 'gone' AND json_extract(value, '{time}') > 0"
        );
        assert_eq!(store.execute(&hour, []), Ok(1), "{record} {time}");
    }
    drop(store);
    assert_eq!(project.json(&["recover"])["recovered"], json!(["gone"]));
    let shown = project.json(&["show", "gone", "--events", "50"]);
    let events = shown["events"].as_array().expect("a list");
    let charged = events.iter().find(|event| event["type"] == "charged");
    let charged = charged.unwrap_or_else(|| panic!("{shown:#}"));
    // Ten tokens a second: the time under way, which was some seconds, and 20 s.
    let output = charged["body"]["usage"]["output"].as_u64();
    assert!(
        output.is_some_and(|output| (200..300).contains(&output)),
        "{charged:#}"
    );
}
