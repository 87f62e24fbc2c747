//! The documents that the bundle writes are those that the native host writes of the same history,
//! and what both write of one thread is right.

use super::stock_command::{BundleProject, OFFLINE};
use serde_json::{Value, json};

const DIRECTIVE: &str = "---\nlimits: {turns: 5}\ncapabilities: [execute.tool.*]\n---\nLook.\n";

/// Files of a thread that has ended.
const FILES: [&str; 4] = [
    "thread.json",
    "transcript.md",
    "transcript.jsonl",
    "archive.d/state.json",
];

/// Two turns: a round of tools, then an answer.
fn script() -> String {
    let call = json!({"name": "list_files", "arguments": {}});
    json!([
        {"text": "Let me look.", "calls": [call], "usage": {"input": 100, "output": 10}},
        {"text": "There is a note.", "usage": {"input": 150, "output": 20}},
    ])
    .to_string()
}

fn looking_project() -> Option<BundleProject> {
    let bundle = BundleProject::new()?;
    bundle.project.write(".ai/directives/hello.md", DIRECTIVE);
    bundle.project.write("answers.json", &script());
    bundle.project.write("notes.txt", "remember the milk\n");
    Some(bundle)
}

fn read(bundle: &BundleProject, file: &str) -> String {
    let path = bundle.project.path().join(".ai/threads").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces times, what is measured of them, and hashes, which cover them.
fn mask_times(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        let line = match serde_json::from_str::<Value>(line) {
            Ok(mut value) => {
                mask_value(&mut value);
                value.to_string()
            }
            Err(_) => mask_line(line),
        };
        masked.push_str(line.trim_end());
        masked.push('\n');
    }
    masked
}

/// Names of fields that hold a time, a duration or a hash.
const TIMED: [&str; 10] = [
    "createdAt",
    "updatedAt",
    "timestamp",
    "durationMs",
    "duration_ms",
    "created_at",
    "updated_at",
    "saved_at",
    "duration_seconds",
    "hash",
];

fn mask_value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match TIMED.contains(&name.as_str()) {
                    true => *value = json!("-"),
                    false => mask_value(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask_value),
        _ => {}
    }
}

fn mask_line(line: &str) -> String {
    if line.starts_with("<sub>") {
        return "<sub>-</sub>".to_owned();
    }
    // The length of a version counts the digits of its duration.
    if let Some((version, _)) = line.split_once(", ").filter(|_| line.starts_with("<!--")) {
        return version.to_owned();
    }
    match line.rsplit_once(", ") {
        Some((before, after)) if after.ends_with(" ms*") => before.to_owned(),
        _ => line.to_owned(),
    }
}

fn mask_document(file: &str, text: &str) -> String {
    if file.ends_with(".json") {
        let mut value: Value = serde_json::from_str(text).unwrap();
        mask_value(&mut value);
        return serde_json::to_string_pretty(&value).unwrap();
    }
    mask_times(text)
}

#[test]
fn the_bundle_writes_the_documents_of_the_native_host() {
    let (Some(bundle), Some(native)) = (looking_project(), looking_project()) else {
        return;
    };
    let end = bundle.run(OFFLINE, &["run", "hello", "--id", "one"], "");
    assert_eq!(end.code, Some(0), "{end:?}");
    let run = ["run", "hello", "--id", "one"];
    let run = [&run[..], &["--provider", "scripted:answers.json"]].concat();
    assert_eq!(native.project.run(&run).code, Some(0));
    for file in FILES {
        let [ours, theirs] =
            [&bundle, &native].map(|project| read(project, &format!("one/{file}")));
        assert_eq!(
            mask_document(file, &ours),
            mask_document(file, &theirs),
            "{file}"
        );
        assert!(!ours.is_empty(), "{file}");
    }
    let [ours, theirs] = [&bundle, &native].map(|project| read(project, "usage.jsonl"));
    assert_eq!(mask_times(&ours), mask_times(&theirs));
    assert_eq!(ours.lines().count(), 2, "{ours}");
    assert_eq!(left_behind(&bundle), Vec::<String>::new());
    bundle.assert_sound();
}

/// A parent that spawns a child and waits for it: both have their documents and their usage.
#[test]
fn children_have_documents_and_usage() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    bundle.project.add_family(5);
    let replies = r#"[{"text": "My part is done.", "repeat": "forever"}]"#;
    bundle.project.write(".ai/script.json", replies);
    let end = bundle.run_with_models(&["run", "parent", "--id", "top"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let listed = bundle.project.json(&["list"]);
    let threads = listed["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 2, "{listed}");
    for thread in threads {
        let id = thread["thread_id"].as_str().unwrap();
        for file in FILES {
            assert!(!read(&bundle, &format!("{id}/{file}")).is_empty());
        }
    }
    let usage = read(&bundle, "usage.jsonl");
    let mut of_top = 0;
    for line in usage.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        of_top += u32::from(line["threadId"] == "top");
    }
    assert_eq!((usage.lines().count(), of_top), (3, 2), "{usage}");
    bundle.assert_sound();
}

/// Each kind of host goes on with the documents of the other, and repairs them.
#[test]
fn both_hosts_go_on_with_each_others_documents() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let project = &bundle.project;
    let note = r#"{"type":"note","name":"n","body":1}"#;
    assert_eq!(
        bundle.run(OFFLINE, &["create", "--id", "one"], "").code,
        Some(0)
    );
    for n in 0..3 {
        let end = bundle.run(OFFLINE, &["append", "one"], note);
        assert_eq!(end.code, Some(0), "{n}: {end:?}");
        let command = project.command(&["append", "one"]);
        let end = threadkeep_tests::binary::run_with_input(command, note);
        assert_eq!(end.code, Some(0), "{n}: {end:?}");
    }
    let lines = read(&bundle, "one/transcript.jsonl");
    assert_eq!(lines.matches(r#""name":"n""#).count(), 6, "{lines}");
    // A torn end is cut off, an edited one is written anew.
    for spoil in [
        &(|text: &str| format!("{text}{{\"torn")) as &dyn Fn(&str) -> String,
        &|text: &str| text.replace("note", "nota"),
        &|_| String::new(),
    ] {
        project.write(".ai/threads/one/transcript.jsonl", &spoil(&lines));
        let end = bundle.run(OFFLINE, &["title", "one", "A title"], "");
        assert_eq!(end.code, Some(0), "{end:?}");
        let titled = read(&bundle, "one/transcript.jsonl");
        assert_eq!(titled.matches(r#""name":"n""#).count(), 6, "{titled}");
        assert!(
            !titled.contains("torn") && !titled.contains("nota"),
            "{titled}"
        );
    }
    assert_eq!(left_behind(&bundle), Vec::<String>::new());
    bundle.assert_sound();
}

/// A file with a second name is not written through, and what is no file is left alone.
#[cfg(unix)]
#[test]
fn documents_are_not_written_through_links() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let project = &bundle.project;
    let end = bundle.run(OFFLINE, &["run", "hello", "--id", "one"], "");
    assert_eq!(end.code, Some(0), "{end:?}");
    let at = |name: &str| project.path().join(name);
    project.write("outside.txt", "keep\n");
    let documents = at(".ai/threads/one");
    std::fs::remove_file(documents.join("transcript.md")).unwrap();
    std::fs::hard_link(at("outside.txt"), documents.join("transcript.md")).unwrap();
    std::fs::remove_file(documents.join("thread.json")).unwrap();
    std::os::unix::fs::symlink("../../../outside.txt", documents.join("thread.json")).unwrap();
    std::fs::remove_file(at(".ai/threads/usage.jsonl")).unwrap();
    std::fs::hard_link(at("outside.txt"), at(".ai/threads/usage.jsonl")).unwrap();
    let end = bundle.run(OFFLINE, &["resume", "one", "Again."], "");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(
        end.err.contains("usage.jsonl") && end.err.contains("hard link"),
        "{end:?}"
    );
    let end = bundle.run(OFFLINE, &["title", "one", "A title"], "");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(
        std::fs::read_to_string(at("outside.txt")).unwrap(),
        "keep\n"
    );
}

/// The temporary files that writers have left in the directories of threads.
pub fn left_behind(bundle: &BundleProject) -> Vec<String> {
    let mut left = Vec::new();
    let mut directories = vec![bundle.project.path().join(".ai/threads")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("store.d") {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "new") {
                left.push(path.display().to_string());
            }
        }
    }
    left
}
