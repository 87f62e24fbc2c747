//! Shells that complete the names of a project, each with the script that the program prints. A
//! shell that is not installed is skipped by name.

use super::fixture::CliProject;
use serde_json::json;
use std::process::Command;
use std::time::Duration;
use threadkeep_tests::binary;
use threadkeep_tests::terminal::{TerminalProcess, draw_screen};

/// Lines that are typed, each with the one word that its last word becomes.
const COMPLETIONS: [(&str, &str); 6] = [
    ("threadkeep show al", "alpha"),
    ("threadkeep budget show bet/", "bet/one"),
    ("threadkeep run des", "describe"),
    ("threadkeep chat --model ti", "tiny"),
    ("threadkeep transc", "transcript"),
    ("threadkeep show --ev", "--events"),
];

/// Time in which a shell has drawn what it has completed.
const DRAW_TIME: Duration = Duration::from_millis(500);

/// A project with threads; one name of it a shell would run.
fn project() -> CliProject {
    let project = CliProject::new();
    for id in ["alpha", "beta", "bet/one"] {
        project.json(&["create", "--id", id]);
    }
    project.write(".ai/directives/des$(touch owned).md", "Run.");
    project
}

/// Returns a shell in the project, with the program on its path; none where it is not installed.
fn shell(name: &str, project: &CliProject) -> Option<Command> {
    if Command::new(name).arg("--version").output().is_err() {
        println!("skipped: {name} is not installed");
        return None;
    }
    let mut shell = Command::new(name);
    let folder = binary::path().parent().expect("a folder");
    shell
        .current_dir(project.path())
        .env_clear()
        .env("HOME", project.path())
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    for (name, value) in project.command(&[]).get_envs() {
        value.map(|value| shell.env(name, value));
    }
    Some(shell)
}

/// Runs a script of a shell, and returns the lines that it prints.
fn print_lines(mut shell: Command, arguments: &[&str]) -> Vec<String> {
    let output = shell.args(arguments).output().expect("the shell starts");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_names() {
    let project = project();
    let complete = |line: &str| {
        let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
        let asks = [
            "source <(threadkeep completions bash)",
            &format!("COMP_WORDS=({})", words.join(" ")),
            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))",
            "last=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"",
            "_threadkeep_with_names threadkeep \"$last\" \"$before\"",
            "printf '%s\\n' \"${COMPREPLY[@]}\"",
        ];
        let script = asks.join("\n");
        Some(print_lines(
            shell("bash", &project)?,
            &["--norc", "-c", &script],
        ))
    };
    for (line, expected) in COMPLETIONS {
        let Some(found) = complete(line) else {
            return;
        };
        assert_eq!(found, [expected], "{line}");
    }
    let both = complete("threadkeep show be").expect("bash");
    assert_eq!(both, ["bet/one", "beta"]);
    assert!(!project.exists("owned"));
    let words = ["threadkeep", "--project", "/nowhere", "show", ""];
    let asked = [&["complete-words", "--json", "--"], &words[..]].concat();
    let said = project.run(&asked).json();
    assert_eq!(said, json!({"names": [], "exit": 0}));
}

#[test]
fn fish_completes_names() {
    let project = project();
    let complete = |line: &str| {
        let script = format!("threadkeep completions fish | source; complete -C '{line}'");
        let lines = print_lines(shell("fish", &project)?, &["--no-config", "-c", &script]);
        // Behind a tab stands what it is.
        let words = lines
            .iter()
            .map(|line| line.split('\t').next().unwrap_or_default());
        Some(words.map(str::to_owned).collect::<Vec<_>>())
    };
    for (line, expected) in COMPLETIONS {
        let Some(found) = complete(line) else {
            return;
        };
        assert_eq!(found, [expected], "{line}");
    }
    let both = complete("threadkeep show be").expect("fish");
    assert_eq!(both, ["bet/one", "beta"]);
    assert!(!project.exists("owned"));
}

/// zsh completes only for a person who types.
#[test]
fn zsh_completes_names() {
    let project = project();
    let script = project.run(&["completions", "zsh"]).out;
    project.write("functions/_threadkeep", &script);
    let Some(mut zsh) = shell("zsh", &project) else {
        return;
    };
    zsh.args(["-f", "-i"]);
    let Some(mut terminal) = TerminalProcess::start(&zsh) else {
        return;
    };
    terminal.type_keys("fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D\r");
    // Each prompt has a number of its own.
    terminal.type_keys("precmd() { n=$((n+1)) }; setopt promptsubst; PS1='ready-$n> '\r");
    for (number, (line, expected)) in (1..).zip(COMPLETIONS) {
        terminal.await_text(&format!("ready-{number}> \x1b[K"));
        terminal.type_keys(&format!("{line}\t"));
        let (before, _) = line.rsplit_once(' ').expect("words");
        terminal.await_text(&format!("{before} {expected}"));
        // The line is not run, and stays on the screen. A key that comes while zsh still draws what
        // it has completed is lost.
        std::thread::sleep(DRAW_TIME);
        terminal.type_keys("\x03");
    }
    terminal.await_text(&format!("ready-{}> \x1b[K", COMPLETIONS.len() + 1));
    terminal.type_keys("exit\r");
    let output = terminal.wait_for_end();
    let screen = draw_screen(&output.out);
    for (line, expected) in COMPLETIONS {
        let (before, _) = line.rsplit_once(' ').expect("words");
        assert!(
            screen.contains(&format!("> {before} {expected}")),
            "{screen}"
        );
    }
    assert!(!project.exists("owned"), "{screen}");
}
