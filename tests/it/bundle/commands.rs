//! The command in the bundle: its exit codes, and the same words as the native program's.

use super::stock_command::{BundleProject, OFFLINE, bundle_path};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use threadkeep_tests::stock_wasmtime::program;

/// The output of a command, and its exit code.
#[derive(Debug, PartialEq, Eq)]
struct CommandEnd {
    code: Option<i32>,
    out: String,
    err: String,
}

const GRANTED: [&str; 4] = [
    "--dir",
    ".::/",
    "--env",
    "THREADKEEP_PROVIDER=scripted:answers.json",
];

/// Runs a command of the bundle; `input` is its standard input.
fn run_bundle(directory: &Path, granted: &[&str], arguments: &str, input: &str) -> CommandEnd {
    let mut command = Command::new(program());
    command
        .current_dir(directory)
        .arg("run")
        .args(granted)
        .arg(bundle_path(OFFLINE))
        .args(arguments.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that does not read its input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    CommandEnd {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Command lines in their order, the exit code of each, and words of what it prints.
const LINES: [(&str, i32, &str); 32] = [
    ("list", 0, "there is no store yet"),
    ("show a", 1, "this project has no store yet"),
    ("run hello --id a", 0, "Hello from a script."),
    ("list", 0, "completed"),
    ("show b --json", 1, r#""code":"not-found""#),
    ("run helo", 1, "did you mean hello?"),
    ("create hello --id a", 4, "choose another id"),
    ("lst", 2, "list"),
    (
        "run hello --id c --turns 0",
        3,
        "threadkeep raise c --turns N",
    ),
    ("raise c --turns 5", 0, "c is suspended; caps: 5 turns"),
    ("resume c", 0, "Hello from a script."),
    (
        "resume a --message Again.",
        0,
        "a had completed: going on in",
    ),
    ("title c Short", 0, "Short"),
    ("transcript c", 0, "Hello from a script."),
    ("chain a", 0, "2 links"),
    ("checkpoints c", 0, "run-finished"),
    ("state c --json", 0, r#""exit":0"#),
    ("fork c", 0, "it begins as c was"),
    ("budget show c", 0, "remaining"),
    ("tree c --json", 0, r#""exit":0"#),
    ("create --id d", 0, "d"),
    ("message d Hello.", 0, "d"),
    ("cancel d", 0, "cancelled"),
    ("kill d", 1, "has ended"),
    ("recover", 0, "nothing to recover"),
    ("recover --dead nobody", 0, "no run is held by nobody"),
    ("recover --dead=", 2, "--dead names no holder"),
    ("resume a", 1, "give the message to go on with"),
    // Its message was never answered.
    ("resume d", 0, "d had been cancelled: going on in"),
    (
        "run hello --provider scripted:a",
        2,
        "wasmtime run --env THREADKEEP_PROVIDER=",
    ),
    ("doctor", 2, "the native program has it"),
    ("list --project elsewhere", 2, "--dir DIR::/"),
];

#[test]
fn every_command_ends_with_its_exit_code() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let directory = bundle.project.path();
    for (line, code, words) in LINES {
        let end = run_bundle(directory, &GRANTED, line, "");
        assert_eq!(end.code, Some(code), "{line}: {end:?}");
        let said = end.out.contains(words) || end.err.contains(words);
        assert!(said, "{line}: {end:?}");
    }
    assert!(!bundle.project.exists(".ai/threads/registry.db"));
    bundle.assert_sound();
}

#[test]
fn both_programs_say_the_same() {
    let (Some(bundle), Some(native)) = (BundleProject::new(), BundleProject::new()) else {
        return;
    };
    for line in [
        "run hello --id a",
        "run hello --id a",
        "run hello --id c --turns 0",
        "raise c --turns 0",
        "raise c --turns 5",
        "resume c",
        "run helo",
        "shw c",
        "show e",
        "budget show c",
        "create hello --id f --input x=1",
        "create hello --id g --json --title",
        "cancel c",
        "approve c",
        "transcript nobody",
        "resume a",
        "create --id i",
        "resume i",
        "run hello --id j --turns 0",
        "resume j",
        "recover --dead nobody",
    ] {
        let ours = run_bundle(bundle.project.path(), &GRANTED, line, "");
        let mut arguments: Vec<&str> = line.split(' ').collect();
        arguments.extend(["--store", "files", "--provider", "scripted:answers.json"]);
        let theirs = native.project.run(&arguments);
        let err = ours.err.replace("threadkeep.wasm", "threadkeep");
        let err = err.replace("threadkeep-offline.wasm", "threadkeep");
        // The bundle says so where the next step is a command that it has not.
        let chat = "(`chat` is a command of the native program; here: resume THREAD MESSAGE)";
        let err = err.replace(&format!(" {chat}"), "");
        assert_eq!(ours.code, theirs.code, "{line}");
        assert_eq!(ours.out, theirs.out, "{line}");
        assert_eq!(err, theirs.err, "{line}");
    }
}

/// Symptom: `resume` of a thread that was ended before its first call did nothing and ended with 1.
#[test]
fn a_cancelled_thread_goes_on_in_a_successor_without_a_message() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let directory = bundle.project.path();
    for (id, end, had) in [
        ("c", "cancel", "had been cancelled"),
        ("k", "kill", "had been killed"),
    ] {
        run_bundle(directory, &GRANTED, &format!("create hello --id {id}"), "");
        run_bundle(directory, &GRANTED, &format!("{end} {id}"), "");
        let resumed = run_bundle(directory, &GRANTED, &format!("resume {id}"), "");
        assert_eq!(resumed.code, Some(0), "{resumed:?}");
        assert_eq!(resumed.out, "Hello from a script.\n");
        let begin = format!("{id} {had}: going on in ");
        let told = resumed.err.strip_prefix(&begin);
        let told = told.unwrap_or_else(|| panic!("{resumed:?}"));
        let (new, told) = told.split_once('\n').unwrap();
        assert!(
            told.starts_with(&format!("run 1 of {new}\n")),
            "{resumed:?}"
        );
        // The first step was not given back.
        let events = ["transcript", new, "--format", "jsonl"];
        let events = bundle.project.run(&events).out;
        assert!(events.contains("Hello from a script."), "{events}");
        assert!(!events.contains("\"suspended\""), "{events}");
    }
    bundle.assert_sound();
}

#[test]
fn a_loop_of_a_script_holds_and_appends() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let directory = bundle.project.path();
    run_bundle(directory, &GRANTED, "create --id talk", "");
    let opened = run_bundle(directory, &GRANTED, "open talk --json", "");
    let opened: serde_json::Value = serde_json::from_str(&opened.out).unwrap();
    let token = opened["token"].as_str().unwrap();
    let said = "{\"type\":\"message\",\"role\":\"user\",\"content\":\"We are out of milk.\"}\n";
    let busy = run_bundle(directory, &GRANTED, "append talk", said);
    assert_eq!(busy.code, Some(4), "{busy:?}");
    assert!(busy.err.contains("recover --dead"), "{busy:?}");
    let line = format!("append talk --token {token}");
    let appended = run_bundle(directory, &GRANTED, &line, said);
    assert_eq!(appended.code, Some(0), "{appended:?}");
    let wrong = run_bundle(directory, &GRANTED, &line, "{\"type\":\"message\"}\n");
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert!(wrong.err.contains("line 1 of standard input"), "{wrong:?}");
    // By the variable, which the host has to pass.
    let variable = format!("THREADKEEP_TOKEN={token}");
    let granted = [&GRANTED[..], &["--env", &variable]].concat();
    let closed = run_bundle(directory, &granted, "close talk idle", "");
    assert_eq!(closed.code, Some(0), "{closed:?}");
    assert!(
        bundle
            .project
            .run(&["transcript", "talk"])
            .out
            .contains("out of milk")
    );
    bundle.assert_sound();
}

#[test]
fn children_are_performed_by_the_same_run() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    bundle.project.add_family(2);
    let part = "---\nlimits: {turns: 2}\n---\nDo your part.\n";
    bundle.project.write(".ai/directives/part.md", part);
    bundle
        .project
        .write(".ai/script.json", r#"[{"text": "Done."}]"#);
    let directory = bundle.project.path();
    let end = run_bundle(directory, &GRANTED[..2], "run parent --id top", "");
    assert_eq!(end.code, Some(0), "{end:?}");
    let tree = run_bundle(directory, &GRANTED[..2], "tree top --json", "");
    let tree: serde_json::Value = serde_json::from_str(&tree.out).unwrap();
    let statuses = tree["threads"].as_array().unwrap().iter();
    let statuses: Vec<_> = statuses
        .map(|row| row["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["completed", "completed"], "{tree}");
    bundle.assert_sound();
}

#[test]
fn the_demo_sees_the_threads_of_an_earlier_one() {
    if BundleProject::new().is_none() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let granted = &GRANTED[..2];
    for threads in 1..=2 {
        let end = run_bundle(scratch.path(), granted, "demo", "");
        assert_eq!(end.code, Some(0), "{end:?}");
        let listed = run_bundle(scratch.path(), granted, "list --json", "");
        let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
        assert_eq!(listed["threads"].as_array().unwrap().len(), threads);
    }
    std::fs::write(scratch.path().join(".ai/script.json"), "[]").unwrap();
    let end = run_bundle(scratch.path(), granted, "demo", "");
    assert_eq!(
        end.code,
        Some(2),
        "a file that is not the demo's stays: {end:?}"
    );
}

#[test]
fn a_directory_that_is_not_granted_is_named_with_the_command() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    for (granted, code, words) in [
        (
            &[][..],
            1,
            "wasmtime run --dir DIR::/ threadkeep-offline.wasm",
        ),
        (&["--dir", ".ai::/"], 1, "no directory .ai"),
    ] {
        let end = run_bundle(bundle.project.path(), granted, "list", "");
        assert_eq!(end.code, Some(code), "{end:?}");
        assert!(end.err.contains(words), "{end:?}");
        assert_eq!(end.err.lines().count(), 2, "{end:?}");
    }
    bundle.project.write(".ai/threads/registry.db", "");
    let end = run_bundle(bundle.project.path(), &GRANTED, "list", "");
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.err.contains("threadkeep copy --to files"), "{end:?}");
}

/// Symptom: beside a store of files an empty `registry.db` was a second store for the native
/// program, and a project in SQLite for the bundle. Now one rule looks for both.
#[test]
fn two_stores_are_told_alike() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let directory = bundle.project.path();
    let run = |line: &str| run_bundle(directory, &GRANTED, line, "");
    assert_eq!(run("create --id one").code, Some(0));
    bundle.project.write(".ai/threads/registry.db", "");
    for line in ["list", "show one", "create --id two"] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (ours, theirs) = (run(line), bundle.project.run(&arguments));
        assert_eq!(ours.code, Some(1), "{line}: {ours:?}");
        assert_eq!((ours.code, &ours.err), (theirs.code, &theirs.err), "{line}");
        assert!(ours.err.contains("the project has two stores"), "{ours:?}");
        assert!(ours.err.contains("--store files"), "{ours:?}");
    }
    let invoked = bundle.invoke("get(\"one\")");
    assert!(
        invoked.out.contains("the project has two stores"),
        "{invoked:?}"
    );
    // The one that is named counts.
    let named = run("show one --store files");
    assert_eq!(named.code, Some(0), "{named:?}");
    let named = bundle.project.run(&["show", "one", "--store", "files"]);
    assert_eq!(named.code, Some(0), "{named:?}");
}

/// A missing file of the store is named, with what to do, by both programs.
#[test]
fn a_missing_file_of_the_store_is_named_alike() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let directory = bundle.project.path();
    let run = |line: &str| run_bundle(directory, &GRANTED, line, "");
    for id in ["one", "two"] {
        assert_eq!(run(&format!("create --id {id}")).code, Some(0));
    }
    let lost = directory.join(".ai/threads/store.d/000000000001.commit");
    std::fs::remove_file(lost).unwrap();
    for end in [run("list").err, bundle.project.run(&["list"]).err] {
        let words = "the store is damaged: 000000000001.commit is missing";
        assert!(
            end.contains(words) && end.contains("from a backup"),
            "{end}"
        );
        assert!(end.contains("put back what is missing or damaged"), "{end}");
    }
}
