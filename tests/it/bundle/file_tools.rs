//! The file tools of the bundle answer what the native ones do, refusals included.

use super::stock_command::{BundleProject, creation, run_call};
use serde_json::{Value, json};

/// Calls of one round, over the files that [`plant_files`] makes.
fn calls() -> Value {
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    json!([
        call("list_files", json!({})),
        call("list_files", json!({"path": "folder"})),
        call("read_file", json!({"path": "notes.txt"})),
        call(
            "read_file",
            json!({"path": "notes.txt", "offset": 2, "limit": 1})
        ),
        call("read_file", json!({"path": "inside.txt"})),
        call("read_file", json!({"path": "none.txt"})),
        call("read_file", json!({"path": "hard.txt"})),
        call("read_file", json!({"path": "outside.txt"})),
        call("read_file", json!({"path": "absolute.txt"})),
        call("read_file", json!({"path": "../notes.txt"})),
        call("read_file", json!({"path": ".ai/directives/hello.md"})),
        call("read_file", json!({"path": "hidden/hello.md"})),
        call("read_file", json!({"path": "folder"})),
        call("search_files", json!({"pattern": "milk"})),
        call(
            "search_files",
            json!({"pattern": "^r.*k$", "regex": true, "path": "notes.txt"})
        ),
        call("search_files", json!({"pattern": "(", "regex": true})),
    ])
}

#[cfg(unix)]
fn plant_files(bundle: &BundleProject) {
    use std::os::unix::fs::symlink;
    let project = &bundle.project;
    let directive = "---\ncapabilities: [execute.tool.*]\n---\nLook.\n";
    project.write(".ai/directives/hello.md", directive);
    let script = json!([{"calls": calls()}, {"text": "Seen."}]);
    project.write("answers.json", &script.to_string());
    project.write("notes.txt", "remember\nthe milk\nrest of milk\n");
    project.write("folder/more.txt", "more milk\n");
    project.write("twice.txt", "hidden words\n");
    let at = |name: &str| project.path().join(name);
    std::fs::hard_link(at("twice.txt"), at("hard.txt")).unwrap();
    symlink("notes.txt", at("inside.txt")).unwrap();
    symlink("../elsewhere.txt", at("outside.txt")).unwrap();
    symlink("/etc/hostname", at("absolute.txt")).unwrap();
    symlink(".ai/directives", at("hidden")).unwrap();
}

#[cfg(unix)]
#[test]
fn the_bundle_answers_what_the_native_tools_do() {
    let (Some(bundle), Some(native)) = (BundleProject::new(), BundleProject::new()) else {
        return;
    };
    plant_files(&bundle);
    plant_files(&native);
    assert!(bundle.invoke(&creation("one", None)).out.starts_with("ok("));
    let answer = bundle.invoke(&run_call("one", "first"));
    assert!(answer.out.contains("Seen."), "{answer:?}");
    let run = [
        "run",
        "hello",
        "--id",
        "one",
        "--provider",
        "scripted:answers.json",
    ];
    assert_eq!(native.project.run(&run).code, Some(0));
    let (ours, theirs) = (results(&bundle), results(&native));
    assert_eq!(ours.len(), calls().as_array().unwrap().len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    let texts = format!("{ours:?}");
    assert!(
        texts.contains("the milk") && texts.contains("more.txt"),
        "{texts}"
    );
    for secret in ["hidden words", "capabilities"] {
        assert!(!texts.contains(secret), "{secret}: {texts}");
    }
    bundle.assert_sound();
}

/// The text of each tool's result, and whether it failed.
fn results(bundle: &BundleProject) -> Vec<(String, bool)> {
    let lines = bundle
        .project
        .run(&["transcript", "one", "--format", "jsonl"]);
    let events = lines
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let results = events.filter(|event: &Value| event["type"] == "tool_result");
    let text = |event: &Value| event["text"].as_str().unwrap_or_default().to_owned();
    results
        .map(|event| (text(&event), event["failed"] == true))
        .collect()
}
