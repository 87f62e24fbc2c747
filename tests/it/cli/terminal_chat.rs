//! A chat in a terminal: editing, history, pastes, commands, and what Ctrl-C drops.

use super::fixture::{CliProject, SLOW};
use threadkeep_tests::terminal::{TerminalProcess, draw_screen};

/// A paste, as a terminal brackets it.
const PASTE: &str = "\x1b[200~one\rtwo\x1b[201~\r";

fn project(script: &str) -> CliProject {
    let project = CliProject::new();
    project.write(".ai/script.json", script);
    project
}

fn start(project: &CliProject, arguments: &[&str]) -> Option<TerminalProcess> {
    TerminalProcess::start(&project.command(&[&["chat"], arguments].concat()))
}

#[test]
fn lines_are_edited_recalled_and_pasted() {
    let project = project(r#"[{"text": "First."}, {"text": "Second."}, {"text": "Third."}]"#);
    let Some(mut chat) = start(&project, &["--id", "talk"]) else {
        return;
    };
    chat.await_text("> ");
    // Two steps back, and a letter between.
    chat.type_keys("ac\x1b[Db\r");
    chat.await_text("First.");
    chat.await_text("turn 1");
    chat.type_keys("\x1b[A!\r");
    chat.await_text("Second.");
    chat.await_text("turn 2");
    chat.type_keys(PASTE);
    chat.await_text("Third.");
    chat.await_text("turn 3");
    // Ctrl-D may come before the prompt.
    chat.type_keys("\x04");
    let ran = chat.wait_for_end();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let text = project.run(&["transcript", "talk"]).out;
    for words in ["> abc\n", "> abc!\n", "> one\n> two\n"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Another process recalls what was said here before.
    let Some(mut again) = start(&project, &["talk"]) else {
        return;
    };
    again.await_text("> ");
    // The newest has two lines, through which the cursor moves up first.
    again.type_keys("\x1b[A\x1b[A\x1b[A");
    again.await_text("abc!");
    again.type_keys("\x03");
    again.await_text("press Ctrl-C again");
    again.type_keys("\x03");
    assert_eq!(again.wait_for_end().code, Some(130));
}

/// Symptom: what was typed while a reply came was sent after Ctrl-C had stopped it. Cause: the
/// lines waited in the terminal. Fix: Ctrl-C drops them.
#[test]
fn lines_typed_ahead_are_dropped_with_the_reply() {
    let project = project(SLOW);
    let Some(mut chat) = start(&project, &["--id", "talk"]) else {
        return;
    };
    chat.await_text("> ");
    chat.type_keys("begin\r");
    chat.await_text("Begun");
    chat.type_keys("meant for later\n\x03");
    // The next prompt takes pastes. What comes before it is dropped, too.
    chat.await_text("stopped\r\n\x1b[?2004h");
    chat.type_keys("/cost\r");
    chat.await_text("is left");
    chat.type_keys("/quit\r");
    let ran = chat.wait_for_end();
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    let text = project.run(&["transcript", "talk"]).out;
    assert!(!text.contains("meant for later"), "{text}");
    // Nor does it stand in the middle of the reply.
    assert!(!ran.out.contains("meant for later"), "{ran:#?}");
}

/// A line that is typed while a reply comes is the next message, if nothing drops it.
#[test]
fn lines_typed_ahead_are_sent_after_the_reply() {
    let project = project(
        r#"[{"text": "Begun, and done.", "chunk": 6, "pause_ms": 1500}, {"text": "Second."},
            {"text": "Third."}]"#,
    );
    let Some(mut chat) = start(&project, &["--id", "talk"]) else {
        return;
    };
    chat.await_text("> ");
    chat.type_keys("begin\r");
    chat.await_text("Begun");
    chat.type_keys("one more\nand another\n");
    chat.await_text("Third.");
    chat.await_text("turn 3");
    chat.type_keys("/quit\r");
    let ran = chat.wait_for_end();
    let screen = draw_screen(&ran.out);
    assert!(screen.contains("Begun, and done.\n"), "{screen}");
    assert!(
        screen.contains("> one more\n") && screen.contains("> and another\n"),
        "{screen}"
    );
}

/// Says how a chat goes on with another model.
const IMPORT: &str = "threadkeep import --model default --state .ai/threads/talk/state.json";

#[test]
fn a_person_has_commands() {
    let project = project(r#"[{"text": "First."}, {"text": "Second."}]"#);
    let Some(mut chat) = start(&project, &["--id", "talk"]) else {
        return;
    };
    for (keys, awaited) in [
        ("/help\r", "// begins a message with a /"),
        ("/fork\r", "there is nothing to fork"),
        ("/model\r", "/model NAME takes another: default, tiny"),
        ("/model nothing\r", "there is no model"),
        ("/model tiny\r", "the model is tiny"),
        ("/cost\r", "0.00 USD for 0 turns"),
        ("Hello.\r", "turn 1"),
        ("/model nothing\r", "there is no model"),
        ("/model default\r", "keeps the model of its first message"),
        ("/model default\r", IMPORT),
        ("/title A talk\r", "/title A talk"),
        ("/fork\r", "talk stays as it is"),
        ("More.\r", "turn 1: "),
        ("/nothing\r", "is no command of a chat"),
    ] {
        chat.type_keys(keys);
        chat.await_text(awaited);
    }
    chat.await_text("Second.");
    chat.type_keys("/quit\r");
    let ran = chat.wait_for_end();
    assert_eq!(ran.code, Some(0), "{}", draw_screen(&ran.out));
    assert_eq!(project.threads(), 2);
    let forks = project.json(&["list", "--forks", "talk"]);
    let fork = forks["threads"][0]["thread_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        ran.out.contains(&format!("next: threadkeep chat {fork}")),
        "{ran:#?}"
    );
    // What is said about another model is so.
    let words: Vec<&str> = IMPORT.split(' ').skip(1).collect();
    let made = project.json(&words);
    assert_eq!(
        (&made["exit"], &made["thread"]["status"]),
        (&0.into(), &"idle".into())
    );
    assert_eq!(made["messages"], 2, "{made}");
    assert_eq!(project.json(&["show", "talk"])["thread"]["title"], "A talk");
    assert_eq!(
        project.json(&["show", "talk"])["thread"]["cost"]["turns"],
        1
    );
}

/// A request to end reaches a chat that waits at its prompt, and the terminal gets its mode back:
/// the line editor is left while it reads.
#[test]
fn a_chat_that_is_asked_to_end_leaves_the_terminal_as_it_was() {
    const SCRIPT: &str = "sh -c \"echo \\$\\$ > pid; exec $0 chat\"; echo ended; stty -a";
    let project = project(r#"[{"text": "First."}]"#);
    let inner = project.command(&[]);
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", SCRIPT])
        .arg(inner.get_program())
        .current_dir(project.path());
    for (name, value) in inner.get_envs() {
        value.map(|value| shell.env(name, value));
    }
    let Some(terminal) = TerminalProcess::start(&shell) else {
        return;
    };
    terminal.await_text("> ");
    let pid = std::fs::read_to_string(project.path().join("pid")).unwrap();
    let killed = std::process::Command::new("kill").arg(pid.trim()).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let ran = terminal.wait_for_end();
    let (_, after) = ran.out.split_once("ended").expect("the shell goes on");
    assert!(
        after.contains(" icanon") && after.contains(" echo "),
        "{after}"
    );
}
