//! Text of models, people and tools that hides or reorders the text around it, through a real run:
//! documents and `--json` escape it, and the stored history keeps it unchanged.

use super::fixture::CliProject;
use serde_json::Value;
use threadkeep_units::printable::is_hidden_control;

/// Text of a model and a person: C1, DEL, an override, direction marks, characters without width,
/// and an emoji with a joiner.
const SAID: &str = "a\u{9b}31m\u{7f}b\u{202e}c\u{200f}\u{200e}\u{61c}d\u{2066}\
                    \u{2069}\u{200b}\u{feff}\u{2028}e 👩\u{200d}💻 漢";

/// The characters of a text that a terminal would obey or a reader would not see, except line feeds
/// and tabs.
fn hidden(text: &str) -> String {
    let hidden = |c: &char| is_hidden_control(*c) && !matches!(c, '\n' | '\t');
    text.chars().filter(hidden).collect()
}

fn project() -> CliProject {
    let project = CliProject::new();
    let script = serde_json::json!([{
        "text": SAID,
        "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
    }, {"text": SAID}]);
    project.write(".ai/script.json", &script.to_string());
    project.write("notes.txt", SAID);
    project.write(
        ".ai/directives/say.md",
        "---\ncapabilities: [execute.tool.read_file]\n---\nSay it.\n",
    );
    project
}

/// Symptom: `--json`, `thread.json`, `transcript.jsonl` and `transcript.md` held C1 and direction
/// controls raw, and a terminal or an editor obeyed them. Cause: JSON requires an escape for C0
/// alone, and each place had a list of its own. Fix: the core has one list. Kind: every document
/// and every command that repeats text of a model, a tool or a person.
#[test]
fn documents_and_json_hide_nothing_and_keep_the_value() {
    let project = project();
    let ran = project.run(&["run", "say", "--id", "t", "--json"]);
    let answer = ran.json();
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_eq!(answer["text"], SAID, "the value is the same");
    assert_eq!(hidden(&ran.out), "", "{}", ran.out);
    for arguments in [
        &["show", "t", "--events", "50"][..],
        &["list"],
        &["transcript", "t"],
        &["transcript", "t", "--format", "jsonl"],
        &["transcript", "t", "--format", "state"],
    ] {
        let mut json = arguments.to_vec();
        json.push("--json");
        let ran = project.run(&json);
        ran.json();
        assert_eq!(hidden(&ran.out), "", "{arguments:?}: {}", ran.out);
    }
    // Rendered transcripts hide nothing on a pipe either.
    for format in ["markdown", "jsonl", "state"] {
        let ran = project.run(&["transcript", "t", "--format", format]);
        assert_eq!(hidden(&ran.out), "", "{format}: {}", ran.out);
    }
    let read = |name: &str| {
        std::fs::read_to_string(project.path().join(".ai/threads/t").join(name)).expect(name)
    };
    for name in ["thread.json", "transcript.jsonl", "transcript.md"] {
        assert_eq!(hidden(&read(name)), "", "{name}");
    }
    let thread: Value = serde_json::from_str(&read("thread.json")).unwrap();
    assert_eq!(thread["result"], SAID, "{thread}");
    let jsonl = read("transcript.jsonl");
    let said = jsonl
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["text"] == SAID)
        .count();
    assert!(said >= 3, "two replies and a result: {jsonl}");
    let markdown = read("transcript.md");
    for words in [
        "a\\u{9b}31m\u{2421}b\\u{202e}c\\u{200f}\\u{200e}\\u{61c}d",
        "e 👩\u{200d}💻 漢",
    ] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
    // Hashes, and documents against records.
    let audit = project.json(&["audit"]);
    assert_eq!(audit["exit"], 0, "{audit}");
    assert_eq!(audit["findings"], serde_json::json!([]), "{audit}");
}

/// On a pipe a reply is data and keeps the model's exact text; standard error stays escaped for
/// people.
#[test]
fn a_reply_on_a_pipe_is_data() {
    let project = project();
    let ran = project.run(&["run", "say", "--id", "t"]);
    assert!(ran.out.contains(SAID), "{}", ran.out);
    assert_eq!(hidden(&ran.err), "", "{}", ran.err);
}
