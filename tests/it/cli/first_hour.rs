//! The first hour of a new user, in a terminal of 80 columns, against a third-party model server:
//! each screen is compared, with colours and without.

use super::fixture::CliProject;
use serde_json::json;
use threadkeep_tests::binary;
use threadkeep_tests::llmock::{LlmockServer, MockWire};
use threadkeep_tests::terminal::{COLUMNS, TerminalProcess, draw_screen};

/// The screens, each behind a line `$ COMMAND`.
const SCREENS: &str = include_str!("first_hour_screens.txt");

/// A command of the hour.
struct HourStep {
    command: &'static str,
    /// Lines that are typed once it asks: each after the text it waits for.
    typed: &'static [(&'static str, &'static str)],
    /// True if it has colours.
    is_styled: bool,
}

/// A command that asks nothing and prints a table, a page or one line.
const fn make_plain_step(command: &'static str) -> HourStep {
    HourStep {
        command,
        typed: &[],
        is_styled: false,
    }
}

/// A run that asks nothing.
const fn make_styled_step(command: &'static str) -> HourStep {
    HourStep {
        is_styled: true,
        ..make_plain_step(command)
    }
}

/// The file that the last step writes.
const PAGE: &str = "short.html";

const STEPS: [HourStep; 8] = [
    make_plain_step("init"),
    HourStep {
        typed: &[
            ("> ", "What is a lease?\r"),
            ("turn 1", "/title Leases\r"),
            ("/title Leases", "/cost\r"),
            ("is left", "/quit\r"),
        ],
        ..make_styled_step("chat --id talk")
    },
    make_styled_step("run describe --id short --input file=notes.txt --turns 1"),
    make_plain_step("raise short --turns 5"),
    make_styled_step("resume short"),
    make_plain_step("tree short"),
    make_plain_step("usage --by directive,model"),
    make_plain_step("export html short > short.html"),
];

#[test]
fn screens_of_the_first_hour() {
    let Some(server) = LlmockServer::start() else {
        return;
    };
    for color in ["always", "never"] {
        server.reset();
        server.queue_behaviors(&json!([
            {"type": "reply", "text": "A lease is a right for a time."},
            {"type": "reply", "text": "Let me look.", "tool_calls": [
                {"name": "read_fil", "arguments": {"path": "notes.txt"}},
                {"name": "read_file", "arguments": {"path": "notes.txt", "why": "é".repeat(60)}},
            ]},
            {"type": "reply", "text": "It is a shopping list."},
        ]));
        let project = CliProject::empty();
        project.write("notes.txt", "oats\nmilk\ncoffee\n");
        let mut seen = String::new();
        for step in &STEPS {
            let Some(output) = perform(step, color, &project, &server) else {
                return;
            };
            let has_styles = output.contains("\x1b[36m") || output.contains("\x1b[2m");
            assert_eq!(has_styles, color == "always" && step.is_styled, "{output}");
            let screen = replace_times(&draw_screen(&output));
            assert!(
                screen
                    .lines()
                    .all(|line| line.chars().count() <= usize::from(COLUMNS.get()))
            );
            seen.push_str(&format!("$ {}\n", step.command));
            if !screen.trim().is_empty() {
                seen.push_str(&screen);
            }
        }
        assert_eq!(seen, SCREENS, "{color}\n{seen}");
        let page = std::fs::read_to_string(project.path().join(PAGE)).expect("a page");
        for text in [
            "<!doctype html>",
            "It is a shopping list.",
            "<details>",
            "notes.txt",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert!(!page.contains('\x1b'), "{page}");
        assert_eq!(server.findings(), [] as [serde_json::Value; 0]);
    }
}

/// Performs a step, and returns what its terminal was sent.
fn perform(
    step: &HourStep,
    color: &str,
    project: &CliProject,
    server: &LlmockServer,
) -> Option<String> {
    let line = step.command.strip_suffix(&format!(" > {PAGE}"));
    let words = line.unwrap_or(step.command).split(' ');
    let words: Vec<&str> = words.chain(["--color", color]).collect();
    let mut command = project.command(&words);
    if line.is_some() {
        command = binary::in_shell(&command, &format!("\"$0\" \"$@\" > {PAGE}"));
    }
    command
        .env("OPENAI_API_KEY", "a-key")
        .env("OPENAI_BASE_URL", server.base_url(MockWire::OpenAi));
    let mut terminal = TerminalProcess::start(&command)?;
    for (awaited, keys) in step.typed {
        terminal.await_text(awaited);
        terminal.type_keys(keys);
    }
    let output = terminal.wait_for_end();
    assert!(matches!(output.code, Some(0 | 3)), "{output:#?}");
    Some(output.out)
}

/// Puts `N s` in the place of each time, which differs from run to run.
fn replace_times(screen: &str) -> String {
    let mut shown = String::new();
    for line in screen.lines() {
        let is_time = |word: &str| word.parse::<f64>().is_ok();
        match line
            .strip_suffix(" s")
            .and_then(|line| line.rsplit_once(' '))
        {
            Some((rest, last)) if is_time(last) => shown.push_str(&format!("{rest} N s\n")),
            _ => shown.push_str(&format!("{line}\n")),
        }
    }
    shown
}
