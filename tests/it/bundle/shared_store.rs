//! One store of plain files, written by bundles and native processes.

use super::stock_command::{BundleProject, run_call};
use std::io::Write;

/// Appends of each writer.
const APPENDS: usize = 12;

#[test]
fn native_processes_and_bundles_go_on_with_each_others_threads() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    bundle.create("one");
    let answer = bundle.invoke(&run_call("one", "first"));
    assert!(answer.out.contains("Hello from a script."), "{answer:?}");
    let project = &bundle.project;
    let native = [
        "run",
        "hello",
        "--id",
        "two",
        "--provider",
        "scripted:answers.json",
    ];
    assert_eq!(project.run(&native).code, Some(0));
    let answer = bundle.invoke("get(\"two\")");
    assert!(answer.out.contains("status: \"completed\""), "{answer:?}");
    assert_eq!(project.status("one"), "completed");
    let resumed = bundle.invoke(
        "resume(\"two\", some(\"{\\\"role\\\":\\\"user\\\",\\\"content\\\":[{\\\"type\\\":\
         \\\"text\\\",\\\"text\\\":\\\"Again.\\\"}]}\"), \"bundle/2\", \"again\", none)",
    );
    assert!(resumed.out.starts_with("ok("), "{resumed:?}");
    assert_eq!(project.threads(), 3, "a thread that ended has a successor");
    bundle.assert_sound();
}

#[test]
fn writers_of_both_kinds_lose_nothing() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    bundle.create("one");
    std::thread::scope(|scope| {
        for writer in ["a", "b"] {
            let bundle = &bundle;
            scope.spawn(move || {
                for n in 0..APPENDS {
                    append_note(bundle, &format!("{writer}{n}"));
                }
            });
        }
        for n in 0..APPENDS {
            let mut command = bundle.project.command(&["append", "one"]);
            let child = command.stdin(std::process::Stdio::piped()).spawn();
            let mut child = child.unwrap();
            let line = note(&format!("native{n}"));
            writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
            assert!(child.wait().unwrap().success(), "{n}");
        }
    });
    let transcript = bundle
        .project
        .run(&["transcript", "one", "--format", "jsonl"])
        .out;
    for writer in ["a", "b", "native"] {
        for n in 0..APPENDS {
            let name = format!("\"name\":\"{writer}{n}\"");
            assert_eq!(transcript.matches(&name).count(), 1, "{name}");
        }
    }
    bundle.assert_sound();
}

fn note(name: &str) -> String {
    format!("{{\"type\":\"note\",\"name\":\"{name}\",\"body\":1}}")
}

/// Appends a note; another writer that was faster is no error, the same call is made again.
fn append_note(bundle: &BundleProject, name: &str) {
    let event = format!("{:?}", note(name));
    let call = format!(
        "append(\"one\", none, any, {{events: [{event}], patches: [], operations: [], request: \
         some({name:?})}})"
    );
    for _ in 0..100 {
        let answer = bundle.invoke(&call);
        if answer.out.starts_with("ok(") {
            return;
        }
        assert!(answer.out.contains("unavailable"), "{name}: {answer:?}");
    }
    panic!("{name} was never written");
}
