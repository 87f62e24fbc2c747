//! `top` in a terminal: what it draws, what it shows of other processes, and what it leaves.

use super::fixture::CliProject;
use threadkeep_tests::terminal::{TerminalProcess, draw_screen};

/// Ends the screen that `top` draws on, which shows the other one again.
const LEAVE_SCREEN: &str = "\x1b[?1049l";

#[test]
fn a_live_screen_shows_what_another_process_does() {
    let project = CliProject::new();
    let Some(mut top) = TerminalProcess::start(&project.command(&["top", "--every", "1s"])) else {
        return;
    };
    top.await_text("0 threads: 0 running");
    // Symptom: a screen that was there before the first thread stayed empty. Cause: it read the
    // empty store of a project without one. Fix: the store is looked for again.
    project.json(&["create", "--id", "quiet", "--title", "A title"]);
    top.await_text("quiet");
    // Only what differs is drawn, so each text is awaited where another one stood.
    project.finish_thread("zzzzz");
    top.await_text("zzzzz");
    project.json(&["create", "--id", "yyyyy"]);
    top.await_text("yyyyy");
    top.type_keys("q");
    let output = top.wait_for_end();
    assert_eq!(output.code, Some(0), "{output:#?}");
    let (drawn, after) = output.out.rsplit_once(LEAVE_SCREEN).expect("it ends");
    let screen = draw_screen(drawn);
    let expected = [
        "3 threads: 0 running",
        "THREAD",
        "quiet",
        "yyyyy",
        "zzzzz",
        "completed",
        "A title",
        "q ends it",
    ];
    for text in expected {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    // The cursor is shown again, and nothing of the screen is left.
    assert!(after.contains("\x1b[?25h"), "{after:?}");
    assert_eq!(draw_screen(&output.out).trim(), "", "{output:#?}");
}

/// Ctrl-C ends it as well, and the terminal echoes again.
#[test]
fn the_terminal_is_as_before() {
    let project = CliProject::new();
    project.json(&["create", "--id", "quiet"]);
    let script = "stty -a; \"$0\" \"$@\"; echo code $?; stty -a";
    let command = threadkeep_tests::binary::in_shell(&project.command(&["top"]), script);
    let Some(mut shell) = TerminalProcess::start(&command) else {
        return;
    };
    shell.await_text("quiet");
    shell.type_keys("\x03");
    let output = shell.wait_for_end().out;
    assert!(output.contains("code 0"), "{output}");
    let settings = |text: &str| {
        let begin = text.find("speed").expect("settings");
        let end = text[begin..].find("echoke").expect("settings");
        text[begin..begin + end].to_owned()
    };
    let (before, after) = output.split_once("code 0").expect("both");
    assert_eq!(settings(before), settings(after));
}
