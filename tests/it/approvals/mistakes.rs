//! Slips of the person who decides, and processes that die meanwhile.

use super::commands::{DIRECTIVE, ONE_CALL, SCRIPT, project};
use serde_json::{Value, json};

/// Symptom: `approve t call_2_1 call_9_9` approved the first call and told of an error alone.
/// Cause: the calls were decided about in the order of their names. Fix: one that does not wait
/// comes first, and an error says what is recorded. Kind: commands of several steps, one of
/// which fails.
#[test]
fn nothing_is_decided_where_one_of_the_named_calls_is_wrong() {
    let project = project(SCRIPT);
    project.json(&["run", "look", "--id", "t"]);
    for word in ["approve", "deny"] {
        let wrong = project.json(&[word, "t", "call_2_1", "call_9_9", "call_2_3"]);
        assert_eq!(wrong["error"]["code"], "invalid", "{wrong}");
        let waits = project.json(&["show", "t"])["thread"]["waits_for"]["calls"].clone();
        assert_eq!(waits.as_array().map(Vec::len), Some(2), "{word}: {waits}");
    }
    let decided = project.json(&[
        "approve", "t", "call_2_3", "call_2_1", "call_2_3", "--no-run",
    ]);
    assert_eq!(
        decided["calls"],
        json!(["call_2_3", "call_2_1"]),
        "{decided}"
    );
    let none = project.json(&["approve", "t"]);
    assert!(none.to_string().contains("threadkeep resume t"), "{none}");
    let forgotten = project.json(&["answer", "t", "call_2_1"]);
    assert_eq!(forgotten["exit"], 2, "{forgotten}");
    assert_eq!(project.json(&["resume", "t"])["status"], "completed");
}

/// Symptom: `approve` of a thread that stands at a cap ended with the error of the cap alone, as if
/// nothing was approved. Cause: only where the thread does not go on the decision was told. Fix: it
/// is told before, and beside an error. Kind: commands of several steps of which one fails.
#[test]
fn a_decision_is_told_where_the_thread_cannot_go_on() {
    let project = project(ONE_CALL);
    project.json(&["run", "look", "--id", "t", "--turns", "1"]);
    let approved = project.run(&["approve", "t"]);
    assert_ne!(approved.code, Some(0), "{approved:#?}");
    assert!(
        approved.err.contains("t: approved call_2_0"),
        "{approved:#?}"
    );
    let shown = project.json(&["show", "t"])["thread"]["waits_for"].clone();
    assert_eq!(shown["calls"], Value::Null, "{shown}");
}

/// Symptom: after a crash `approve` said that "the process that runs it goes on with it", with exit
/// code 0, any number of times; nothing went on. Cause: a thread that is `running` was taken for
/// one whose process lives. Fix: as for `resume`, the lock of its holder is looked at, and the run
/// of a dead process is closed first. Kind: commands that go on with a thread.
#[test]
fn a_decision_goes_on_where_the_holder_has_died() {
    let project = project(ONE_CALL);
    project.json(&["run", "look", "--id", "t"]);
    project.write(
        ".ai/slow.json",
        r#"[{"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]},
            {"text": "Begun, and never done.", "chunk": 6, "pause_ms": 590000}]"#,
    );
    let running = project.start(&["approve", "t", "--provider", "scripted:.ai/slow.json"]);
    running.await_err("a reply is under way");
    running.kill();
    drop(running.wait_for_end());
    assert_eq!(project.status("t"), "running");
    let again = project.json(&["approve", "t", "call_2_0"]);
    assert_eq!(again["status"], "completed", "{again}");
    let text = project.json(&["transcript", "t"])["text"].to_string();
    assert_eq!(text.matches("remember the milk").count(), 1, "{text}");
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
}

/// Symptom: a person approved arguments that were not shown: a model may write what matters behind
/// padding. Cause: 120 characters were printed, and nothing said that there are more. Fix: 2,000
/// bytes are, and a cut says how many there are and where. Kind: texts that a person decides by.
#[test]
fn arguments_that_are_cut_say_so() {
    for (padding, whole) in [(1_900, true), (3_000, false)] {
        let arguments = json!({"comment": "x".repeat(padding), "path": "notes.txt"});
        let script = json!([
            {"calls": [{"name": "read_file", "arguments": arguments}]},
            {"text": "Done."},
        ]);
        let project = project(&script.to_string());
        let ran = project.run(&["run", "look", "--id", "t"]);
        let shown = project.run(&["show", "t"]);
        for text in [&ran.err, &shown.out] {
            assert_eq!(text.contains(r#""path":"notes.txt"}"#), whole, "{text}");
            let said = text.contains("of 3033 bytes; `threadkeep transcript` shows all");
            assert_eq!(said, !whole, "{text}");
        }
        let text = project.json(&["transcript", "t"])["text"].to_string();
        assert!(text.contains("notes.txt"), "{text}");
    }
}

/// Symptom: calls ran unasked by a policy with `re*d`, `**` or `read_file `. Cause, fix and kind:
/// `a_pattern_of_approvals_that_can_only_be_a_slip_is_refused` of core.
#[test]
fn slips_in_the_approvals_of_a_policy_are_refused_or_warned_of() {
    let project = project(ONE_CALL);
    let plain = DIRECTIVE.replace("approvals: [execute.tool.read_*]\n", "");
    project.write(".ai/directives/look.md", &plain);
    let policy = tempfile::NamedTempFile::new().unwrap();
    let path = policy.path().to_str().unwrap();
    for pattern in [
        "re*d",
        "**",
        "read_file ",
        "",
        "re\u{430}d_*",
        "execute.tool.**",
    ] {
        std::fs::write(path, json!({"approvals": [pattern]}).to_string()).unwrap();
        let refused = project.json(&["run", "look", "--policy", path]);
        assert_eq!(
            refused["error"]["code"], "bad-policy",
            "{pattern}: {refused}"
        );
        assert!(
            refused.to_string().contains("approvals"),
            "{pattern}: {refused}"
        );
    }
    for (pattern, warned) in [
        ("reed_file", Some("read_file")),
        ("READ_FILE", Some("read_file")),
        ("mail_*", Some("matches no tool")),
        ("read_*", None),
        ("execute.tool.read_*", None),
        ("spawn_thread", None),
        ("*", None),
    ] {
        std::fs::write(path, json!({"approvals": [pattern]}).to_string()).unwrap();
        let found = project.run(&["doctor", "--policy", path]).out;
        let warning = found.lines().find(|line| line.contains("matches no tool"));
        assert_eq!(warning.is_some(), warned.is_some(), "{pattern}: {found}");
        if let (Some(warning), Some(words)) = (warning, warned) {
            assert!(warning.contains(words), "{pattern}: {warning}");
        }
    }
}
