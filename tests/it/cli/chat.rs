//! `chat`, `create`, `message`, `title`, `open`, `append`, `close`, `completions`, as people and
//! programs use them.

use super::fixture::{CliProject, SLOW};
use serde_json::{Value, json};
use threadkeep_tests::binary::{self, ProcessOutput};

/// A model whose answer says how many messages it got.
const TALK: &str = r#"[{"text": "One."}, {"text": "Two."}, {"text": "Three."}]"#;

fn project() -> CliProject {
    let project = CliProject::new();
    project.write(".ai/script.json", TALK);
    project
}

fn run_with_input(project: &CliProject, arguments: &[&str], input: &str) -> ProcessOutput {
    binary::run_with_input(project.command(arguments), input)
}

#[test]
fn each_line_is_answered_and_the_chat_goes_on_later() {
    let project = project();
    let ran = run_with_input(
        &project,
        &["chat", "--each-line", "--id", "talk", "--title", "A talk"],
        "first\n\nsecond \\\nline\n",
    );
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "One.\nTwo.\n"),
        "{ran:#?}"
    );
    assert!(
        ran.err.contains("next: threadkeep chat talk"),
        "{}",
        ran.err
    );
    let more = run_with_input(&project, &["chat", "talk", "--json"], "/quit");
    assert_eq!(
        (more.json()["text"].clone(), project.threads()),
        (json!("Three."), 1)
    );
    let text = project.json(&["transcript", "talk"])["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        text.contains("second \n> line") && text.contains("/quit"),
        "{text}"
    );
    assert_eq!(project.json(&["show", "talk"])["thread"]["title"], "A talk");
}

/// Symptom: `threadkeep chat < letter.txt` sent a letter line by line, and paid for each. Cause: a
/// line of a pipe was a message. Fix: a pipe is one message, unless `--each-line` is given.
#[test]
fn a_pipe_is_one_message() {
    let project = project();
    let ran = run_with_input(&project, &["chat", "--id", "talk"], "first\n\n/quit\\\n");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "One.\n"),
        "{ran:#?}"
    );
    let text = project.run(&["transcript", "talk"]).out;
    assert!(text.contains("> first\n>\n> /quit\\\n"), "{text}");
}

#[test]
fn a_program_gets_a_document_for_each_message() {
    let project = project();
    let arguments = ["chat", "--each-line", "--json"];
    let ran = run_with_input(&project, &arguments, "first\nsecond\n");
    let documents: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let texts: Vec<&Value> = documents.iter().map(|document| &document["text"]).collect();
    assert_eq!(texts, ["One.", "Two."]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn refused_chat_commands_leave_nothing() {
    let project = project();
    for (arguments, input, exit, words) in [
        (&["chat"][..], "", 2, "nothing was said"),
        (&["chat"], " \n\n", 2, "nothing was said"),
        (&["chat", "--model", "tinny"], "hi", 1, "did you mean tiny?"),
        (&["chat", "--id", "a.b"], "hi", 1, "invalid"),
        (&["chat", "nothing"], "hi", 1, "no store yet"),
        (&["create", "descrbe"], "", 1, "did you mean describe?"),
        (&["create", "describe"], "", 1, "--input file=VALUE"),
        (&["message", "nothing", "hi"], "", 1, "no store yet"),
        (&["title", "nothing", "x"], "", 1, "no store yet"),
        (&["open", "nothing"], "", 1, "no store yet"),
        (&["append", "nothing"], "", 1, "no store yet"),
        (
            &["close", "nothing", "idle", "--token", "nothing#1"],
            "",
            1,
            "no store yet",
        ),
        (&["close", "nothing", "idle"], "", 2, "THREADKEEP_TOKEN"),
        (&["show", "nothing"], "", 1, "no store yet"),
        (&["resume", "nothing"], "", 1, "no store yet"),
        (&["run", "descrbe"], "", 1, "did you mean describe?"),
        (&["recover"], "", 0, ""),
        (&["repair"], "", 0, ""),
        (&["list"], "", 0, ""),
        (
            &["run", "describe", "--input", "file=x", "--store", "memory"],
            "",
            0,
            "",
        ),
    ] {
        let ran = run_with_input(&project, &[arguments, &["--json"]].concat(), input);
        assert_eq!(ran.code, Some(exit), "{arguments:?}: {ran:#?}");
        assert!(ran.out.contains(words), "{arguments:?}: {}", ran.out);
        assert!(
            !project.exists(".ai/threads"),
            "{arguments:?} made something"
        );
    }
}

#[test]
fn only_a_chat_that_can_go_on_is_talked_with() {
    let project = CliProject::new();
    project.finish_thread("done");
    let ran = run_with_input(&project, &["chat", "done", "--json"], "hi").json();
    assert!(
        ran["error"]["message"]
            .as_str()
            .unwrap()
            .contains("directive describe"),
        "{ran}"
    );
    project.json(&["create", "--id", "ended"]);
    project.json(&["cancel", "ended"]);
    let ran = run_with_input(&project, &["chat", "ended", "--json"], "hi").json();
    assert_eq!(
        (&ran["error"]["code"], &ran["exit"]),
        (&json!("refused"), &json!(1))
    );
    project.json(&["create", "--id", "there"]);
    let ran = run_with_input(
        &project,
        &["chat", "there", "--model", "tiny", "--json"],
        "hi",
    )
    .json();
    assert_eq!(
        (&ran["error"]["code"], &ran["exit"]),
        (&json!("usage"), &json!(2))
    );
}

#[test]
fn message_waits_for_a_resume() {
    let project = project();
    let made = project.run(&["create", "--id", "chat", "--agent", "me", "--task", "t-1"]);
    assert_eq!(
        (made.code, made.out.as_str(), made.err.as_str()),
        (Some(0), "chat\n", "next: threadkeep chat chat\n")
    );
    assert_eq!(
        project.json(&["list", "--agent", "me"])["threads"][0]["task"],
        "t-1"
    );
    let sent = project.run(&["message", "chat", "Hello."]);
    assert_eq!(sent.out, "chat is created and has it\n", "{sent:#?}");
    let resumed = project.json(&["resume", "chat"]);
    assert_eq!(
        (&resumed["text"], &resumed["status"]),
        (&json!("One."), &json!("idle"))
    );
    assert_eq!(
        project.run(&["title", "chat", "New"]).out,
        "chat is called \"New\"\n"
    );
    assert_eq!(
        project.run(&["title", "chat", "--none"]).out,
        "chat has no title\n"
    );
    let empty = project.json(&["message", "chat", " "]);
    assert_eq!(empty["error"]["code"], "usage");
}

/// An external loop, as the help of `open` shows it.
#[test]
fn external_loop_opens_appends_and_closes() {
    let project = project();
    project.json(&["create", "--id", "own"]);
    let opened = project.run(&["open", "own", "--for", "5m"]);
    let token = opened.out.trim().to_owned();
    assert_eq!(opened.code, Some(0), "{opened:#?}");
    assert_eq!(project.json(&["resume", "own"])["error"]["code"], "busy");
    let append = |input: &str, more: &[&str]| {
        let mut command = project.command(&[&["append", "own", "--json"], more].concat());
        command.env("THREADKEEP_TOKEN", &token);
        binary::run_with_input(command, input).json()
    };
    let hello = r#"{"type":"message","role":"user","content":"Hello."}"#;
    let reply = r#"{"type":"message","role":"assistant","content":"Hi."}"#;
    let first = append(&format!("{hello}\n\n{reply}\n"), &[]);
    assert_eq!(
        (&first["status"], &first["exit"]),
        (&json!("running"), &json!(0)),
        "{first}"
    );
    project.json(&["message", "own", "More."]);
    let mail = append("", &[]);
    assert_eq!(mail["mail"][0]["role"], "user", "{mail}");
    let stale = append(reply, &["--expected", "1"]);
    assert_eq!(
        (&stale["error"]["code"], &stale["exit"]),
        (&json!("conflict"), &json!(4))
    );
    let wrong = append(r#"{"type":"mesage"}"#, &[]);
    assert!(
        wrong["error"]["message"]
            .as_str()
            .unwrap()
            .contains("line 1 of standard input"),
        "{wrong}"
    );
    let closed = project.json(&[
        "close",
        "own",
        "completed",
        "--result",
        "{\"n\":1}",
        "--token",
        &token,
    ]);
    assert_eq!(closed["status"], "completed", "{closed}");
    assert_eq!(
        project.json(&["show", "own"])["thread"]["result"],
        json!({"n": 1})
    );
    let mut command = project.command(&["append", "own", "--json"]);
    command.env("THREADKEEP_TOKEN", "seven");
    assert_eq!(
        binary::run_with_input(command, hello).json()["error"]["code"],
        "usage"
    );
}

#[test]
fn shells_can_complete_commands() {
    let project = CliProject::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = project.run(&["completions", shell]);
        assert_eq!(ran.code, Some(0), "{shell}");
        assert!(
            ran.out.contains("transcript") && ran.out.contains("capability"),
            "{shell}"
        );
    }
}

/// A termination signal stops a chat's reply as it stops a run: both are suspended and can go on.
#[cfg(unix)]
#[test]
fn a_request_to_end_suspends_run_and_chat() {
    let project = CliProject::new();
    project.write("slow.json", SLOW);
    let running = project.start_unending("run");
    running.terminate();
    assert_eq!(running.wait_for_end().code, Some(3));
    assert_eq!(project.status("run"), "suspended");
    let arguments = ["chat", "--id", "talk", "--provider", "scripted:slow.json"];
    let chat = binary::start_with_input(project.command(&arguments), "hi\n");
    chat.await_err("a reply is under way");
    chat.terminate();
    let ran = chat.wait_for_end();
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    let shown = project.json(&["show", "talk"]);
    assert_eq!(shown["thread"]["cause"]["code"], "stopped");
    let said = "no usage was reported for one call: 0.";
    assert!(ran.err.contains(said), "{}", ran.err);
    let again = run_with_input(&project, &["chat", "talk", "--json"], "again").json();
    assert_eq!(again["status"], "idle", "{again}");
}

/// A chat in a terminal asks about a call in place, and goes on with what the person types: an
/// unclear answer is asked again, a denial and its note reach the model, and an answer is the
/// result.
#[cfg(unix)]
#[test]
fn a_chat_in_a_terminal_asks_about_calls_in_place() {
    let project = CliProject::new();
    project.write("notes.txt", "remember the milk");
    let read = json!({"name": "read_file", "arguments": {"path": "notes.txt"}});
    let script = json!([
        {"text": "Let me look.", "calls": [read, read, read]},
        {"text": "That is all."},
    ]);
    project.write(".ai/script.json", &script.to_string());
    let policy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy.path(), "approvals: [\"read_*\"]\n").unwrap();
    let arguments = [
        "chat",
        "--id",
        "talk",
        "--capability",
        "execute.tool.read_file",
        "--policy",
        policy.path().to_str().unwrap(),
    ];
    let Some(command) = binary::in_terminal(&project.command(&arguments)) else {
        return;
    };
    let chat = binary::start_with_input(
        command,
        "What is there?\nmaybe\ny\nn too late\na milk\n/quit\n",
    );
    let ran = chat.wait_for_end();
    for words in [
        "allow call_2_1 read_file",
        "y allows it, n does not, a TEXT is its result",
        "allow call_2_3 read_file",
        "That is all.",
    ] {
        assert!(ran.out.contains(words), "{words}: {ran:#?}");
    }
    assert_eq!(project.status("talk"), "idle");
    let text = project
        .run(&["transcript", "talk", "--format", "jsonl"])
        .out;
    let decided = text.matches(r#""type":"decision""#).count();
    assert_eq!(decided, 3, "{text}");
    for words in ["remember the milk", "denied: too late"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
