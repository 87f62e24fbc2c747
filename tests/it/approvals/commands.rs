//! `approve`, `deny`, `answer`, and what `list`, `show` and `run` say of calls that wait.

use crate::cli::fixture::{CliProject, MODELS};
use serde_json::json;

pub const DIRECTIVE: &str = "---
limits: {turns: 5}
capabilities: [execute.tool.read_file, execute.tool.list_files]
approvals: [execute.tool.read_*]
---
Look around.
";

/// A reply with two calls that need consent and one that does not, and the last reply.
pub const SCRIPT: &str = r#"[
  {"text": "Let me look.", "calls": [
    {"name": "read_file", "arguments": {"path": "notes.txt"}},
    {"name": "list_files", "arguments": {}},
    {"name": "read_file", "arguments": {"path": "secret.txt"}}]},
  {"text": "It reminds of milk."}
]"#;

/// A reply with one call that needs consent, and the last reply.
pub const ONE_CALL: &str = r#"[
  {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]},
  {"text": "It reminds of milk."}
]"#;

/// A project whose run stops for two decisions.
pub fn asking_project() -> CliProject {
    project(SCRIPT)
}

/// A project whose model replies by a script.
pub fn project(script: &str) -> CliProject {
    let project = CliProject::empty();
    project.write(".ai/directives/look.md", DIRECTIVE);
    project.write(".ai/config/models.yaml", MODELS);
    project.write(".ai/script.json", script);
    project.write("notes.txt", "remember the milk");
    project.write("secret.txt", "the key is under the mat");
    project
}

#[test]
fn run_stops_and_approve_goes_on_to_the_end() {
    let project = project(ONE_CALL);
    let ran = project.run(&["run", "look", "--id", "t"]);
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    for words in [
        "suspended (approval_needed)",
        r#"call_2_0 read_file {"path":"notes.txt"}"#,
        "threadkeep approve t",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    let listed = project.run(&["list", "--status", "suspended"]);
    assert!(
        listed.out.contains("WAITS FOR")
            && listed.out.contains("a decision about call_2_0 read_file"),
        "{}",
        listed.out
    );
    let shown = project.run(&["show", "t"]);
    assert!(
        shown
            .out
            .contains(r#"a decision about call_2_0 read_file {"path":"notes.txt"}"#),
        "{}",
        shown.out
    );
    let refused = project.json(&["resume", "t"]);
    assert_eq!(refused["error"]["code"], "refused", "{refused}");
    let message = refused["error"].to_string();
    assert!(message.contains("call_2_0"), "{message}");
    let approved = project.run(&["approve", "t"]);
    assert_eq!(approved.code, Some(0), "{approved:#?}");
    assert!(
        approved.out.contains("It reminds of milk."),
        "{}",
        approved.out
    );
    assert_eq!(project.status("t"), "completed");
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
}

#[test]
fn several_calls_are_named_or_all_meant() {
    let project = project(SCRIPT);
    let answer = project.json(&["run", "look", "--id", "t"]);
    let waits = &answer["waits_for"]["calls"];
    assert_eq!(waits[0]["call"], "call_2_1", "{answer}");
    assert_eq!(waits[1]["call"], "call_2_3", "{answer}");
    let vague = project.json(&["approve", "t"]);
    assert_eq!(vague["exit"], 2, "{vague}");
    let message = vague["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("call_2_1") && message.contains("secret.txt"),
        "{message}"
    );
    let wrong = project.json(&["deny", "t", "call_2_2"]);
    assert_eq!(wrong["error"]["code"], "invalid", "{wrong}");
    let denied = project.json(&["deny", "t", "call_2_3", "--note", "That is private."]);
    assert_eq!(denied["decision"], "deny", "one is left: {denied}");
    assert_eq!(denied["waits_for"]["calls"][0]["call"], "call_2_1");
    let again = project.json(&["deny", "t", "call_2_3", "--note", "That is private."]);
    assert_eq!(again["exit"], 0, "{again}");
    let other = project.json(&["approve", "t", "call_2_3"]);
    assert_eq!(other["error"]["code"], "conflict", "{other}");
    let ended = project.json(&["approve", "t", "--all"]);
    assert_eq!(ended["status"], "completed", "{ended}");
    let text = project.json(&["transcript", "t"])["text"].to_string();
    assert!(text.contains("denied: That is private."), "{text}");
    assert!(text.contains("call_2_1 approved"), "{text}");
    assert!(!text.contains("under the mat"), "{text}");
}

#[test]
fn answer_is_the_result_and_no_run_only_decides() {
    let project = project(ONE_CALL);
    project.json(&["run", "look", "--id", "t"]);
    let decided = project.json(&["answer", "t", "Buy milk.", "--no-run"]);
    assert_eq!(
        (&decided["status"], &decided["exit"]),
        (&json!("suspended"), &json!(0))
    );
    assert_eq!(
        decided["waits_for"],
        json!({"start": "approval_needed"}),
        "{decided}"
    );
    let ended = project.json(&["resume", "t"]);
    assert_eq!(ended["status"], "completed", "{ended}");
    let text = project.json(&["transcript", "t"])["text"].to_string();
    assert!(
        text.contains("Buy milk.") && !text.contains("remember the milk"),
        "{text}"
    );
    let late = project.json(&["deny", "t"]);
    assert_eq!(late["error"]["code"], "invalid", "{late}");
    let none = project.json(&["answer", "t"]);
    assert_eq!(none["exit"], 2, "{none}");
}

#[test]
fn raise_is_what_a_capped_thread_waits_for() {
    let project = project(ONE_CALL);
    project.json(&["run", "look", "--id", "t", "--turns", "1"]);
    // The decision is taken; what comes after it needs another turn.
    let refused = project.json(&["approve", "t"]);
    assert_eq!(refused["error"]["code"], "exceeded", "{refused}");
    let raised = project.json(&["raise", "t", "--turns", "2"]);
    assert_eq!(raised["exit"], 0, "{raised}");
    assert_eq!(project.json(&["resume", "t"])["status"], "completed");
    let plain = DIRECTIVE.replace("approvals: [execute.tool.read_*]\n", "");
    project.write(".ai/directives/look.md", &plain);
    let capped = project.json(&["run", "look", "--turns", "1"]);
    assert_eq!(
        capped["waits_for"],
        json!({"raise": {"cap": "turns", "above": 1}}),
        "{capped}"
    );
    let listed = project.run(&["list", "--status", "suspended"]);
    assert!(listed.out.contains("more turns than 1"), "{}", listed.out);
}

#[test]
fn slips_in_approvals_are_refused() {
    let project = project(ONE_CALL);
    for (pattern, words) in [
        ("read_file", "matches no tool"),
        ("read_*", "matches no tool"),
        ("execute.tool.read_fil", "execute.tool.read_file"),
        ("execute.tools.*", "matches no tool"),
    ] {
        let directive = DIRECTIVE.replace("execute.tool.read_*]\n---", &format!("{pattern}]\n---"));
        assert!(directive.contains(pattern));
        project.write(".ai/directives/look.md", &directive);
        let refused = project.json(&["create", "look"]);
        assert_eq!(refused["error"]["code"], "invalid", "{pattern}: {refused}");
        let said = refused["error"].to_string();
        assert!(
            said.contains(words) && said.contains("approvals"),
            "{pattern}: {said}"
        );
    }
}

#[test]
fn operator_asks_for_approval_by_policy() {
    let project = project(ONE_CALL);
    let plain = DIRECTIVE.replace("approvals: [execute.tool.read_*]\n", "");
    project.write(".ai/directives/look.md", &plain);
    let policy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy.path(), "approvals: [\"read_*\"]\n").unwrap();
    let path = policy.path().to_str().unwrap();
    let answer = project.json(&["run", "look", "--id", "t", "--policy", path]);
    assert_eq!(answer["cause"]["code"], "approval_needed", "{answer}");
    let ended = project.json(&["approve", "t", "--policy", path]);
    assert_eq!(ended["status"], "completed", "{ended}");
    let free = project.json(&["run", "look"]);
    assert_eq!(free["status"], "completed", "{free}");
}

/// Symptom: after `approve --no-run` the cause still said that the call waits for a decision,
/// beside `waits for  a resume`, also in `state.json`; the line of the event `decision` was empty.
/// Cause: the message of a cause was written when the run stopped, and never again. Fix: each
/// decision writes it anew. Kind: what is told of a thread is of the version that it is told of.
#[test]
fn cause_names_the_calls_that_are_left() {
    let project = project(SCRIPT);
    project.json(&["run", "look", "--id", "t"]);
    let cause = || {
        let shown = project.json(&["show", "t"]);
        shown["thread"]["cause"]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        cause().contains("call_2_1 (read_file), call_2_3 (read_file) wait"),
        "{}",
        cause()
    );
    project.json(&[
        "approve",
        "t",
        "call_2_1",
        "--no-run",
        "--note",
        "Only this.",
    ]);
    assert_eq!(
        cause(),
        "call_2_3 (read_file) waits for a decision: approve, deny or answer"
    );
    project.json(&["deny", "t", "call_2_3", "--no-run"]);
    assert_eq!(cause(), "every call is decided about: resume to go on");
    let shown = project.run(&["show", "t"]).out;
    assert!(shown.contains("call_2_1 approved: Only this."), "{shown}");
    assert!(shown.contains("call_2_3 denied"), "{shown}");
    let text = std::fs::read_to_string(project.path().join(".ai/threads/t/state.json")).unwrap();
    assert!(text.contains("every call is decided about"), "{text}");
}

/// Symptom: the advice for several calls was `threadkeep approve t`, which is refused for several;
/// the calls of `list --json` had empty arguments; a second decision of the same kind was a
/// "decision with other words, not approve"; a repeated approval of a thread that had completed
/// advised `resume`, which makes a successor. Fix: each says what is so. Kind: advice that is
/// printed can be followed.
#[test]
fn advice_about_decisions_can_be_followed() {
    let project = project(SCRIPT);
    let ran = project.run(&["run", "look", "--id", "t"]);
    assert!(
        ran.err.contains("threadkeep approve t --all"),
        "{}",
        ran.err
    );
    let listed = project.json(&["list", "--status", "suspended"]);
    assert_eq!(
        listed["threads"][0]["waits_for"]["calls"][0],
        json!({"call": "call_2_1", "name": "read_file"})
    );
    project.json(&["approve", "t", "call_2_1", "--no-run", "--note", "one"]);
    let other = project.json(&["approve", "t", "call_2_1", "--no-run", "--note", "two"]);
    assert_eq!(other["exit"], 4, "{other}");
    assert_eq!(
        other["error"]["message"],
        "the call has a decision already: approve with another note"
    );
    project.json(&["approve", "t", "--all"]);
    let again = project.run(&["approve", "t", "call_2_1", "--note", "one"]);
    assert_eq!(again.code, Some(0), "{again:#?}");
    assert!(!again.err.contains("resume"), "{}", again.err);
    assert!(again.err.contains("completed"), "{}", again.err);
}
