//! Names on the command line, through every command that takes one.

use crate::cli::fixture::{MODELS, SCRIPT};
use std::path::Path;
use threadkeep_tests::binary;
use threadkeep_tests::corpus::{
    NameTally, OutsideTree, assert_clean, assert_message, format_tallies,
};

/// Names with different effects on the command line, where each costs a process; a NUL cannot be an
/// argument.
const NAMES: [&str; 5] = [
    "../outside/canary",
    "{outside}/canary",
    "x\n\u{1b}[31m\u{202e}",
    "",
    "{long}",
];

/// Commands with `{}` in the place of the name.
const COMMANDS: [&[&str]; 34] = [
    &["run", "{}"],
    &["run", "x", "--id", "{}"],
    &["run", "x", "--title", "{}"],
    &["run", "x", "--agent", "{}"],
    &["run", "x", "--task", "{}"],
    &["run", "x", "--model", "{}"],
    &["run", "x", "--input", "{}=x"],
    &["run", "x", "--inputs", "{}"],
    &["create", "{}"],
    &["create", "--capability", "{}"],
    &["chat", "{}"],
    &["chat", "--capability", "{}"],
    &["resume", "{}"],
    &["message", "{}", "Hello."],
    &["show", "{}"],
    &["transcript", "{}"],
    &["transcript", "there", "--format", "{}"],
    &["title", "{}", "x"],
    &["title", "there", "{}"],
    &["raise", "{}", "--turns", "9"],
    &["open", "{}"],
    &["append", "{}"],
    &["append", "there", "--token", "{}"],
    &["close", "{}", "idle", "--token", "{}#1"],
    &["cancel", "{}"],
    &["kill", "{}"],
    &["repair", "{}"],
    &["recover", "--dead", "{}"],
    &["list", "--parent", "{}"],
    &["list", "--directive", "{}"],
    &["list", "--status", "{}"],
    &["list", "--chain", "{}"],
    &["list", "--cursor", "{}"],
    &["completions", "{}"],
];

/// Arguments with which the operator names a place: any existing place is allowed, and nothing is
/// made in it.
const OF_THE_OPERATOR: [&[&str]; 3] = [
    &["list", "--project", "{}"],
    &["list", "--policy", "{}"],
    &["run", "x", "--provider", "scripted:{}"],
];

/// Runs a command with a name; returns true if it succeeded. Where `clean` is false the command may
/// read the canary, which is no policy and no script.
fn try_command(project: &Path, arguments: &[&str], name: &str, clean: bool) -> bool {
    let given = arguments.iter().map(|word| word.replace("{}", name));
    let mut command = binary::command(project);
    command.args(given).arg("--json");
    let what = format!("{arguments:?} {name:.40?}");
    let ran = binary::run_to_end(command);
    assert!(matches!(ran.code, Some(0..=4)), "{what}: {ran:?}");
    if clean {
        assert_clean(&what, &ran.out);
        assert_clean(&what, &ran.err);
    }
    let document = ran.json();
    let error = &document["error"];
    if let Some(message) = error["message"].as_str() {
        assert_message(&what, message);
        assert_message(&what, error["code"].as_str().unwrap_or_default());
        if let Some(hint) = error["hint"].as_str() {
            assert_message(&what, hint);
        }
    }
    ran.code == Some(0)
}

#[test]
fn names_through_every_command() {
    let temp = tempfile::tempdir().unwrap();
    let (project, outside) = (
        temp.path().join("project"),
        OutsideTree::create(&temp.path().join("outside")),
    );
    for (path, text) in [
        (".ai/directives/x.md", "Do it."),
        (".ai/config/models.yaml", MODELS),
        (".ai/script.json", SCRIPT),
    ] {
        let path = project.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let (canaries, long) = (outside.path().display().to_string(), "x".repeat(10_000));
    let names = NAMES.map(|name| {
        name.replace("{outside}", &canaries)
            .replace("{long}", &long)
    });
    assert!(try_command(
        &project,
        &["create", "--id", "there"],
        "",
        true
    ));
    let tally = |arguments: &[&str], clean: bool| {
        let mut tally = NameTally::for_entry(&arguments.join(" "));
        for name in &names {
            tally.count(try_command(&project, arguments, name, clean));
            outside.assert_untouched(&format!("{arguments:?} {name:.40?}"));
        }
        tally
    };
    let own = COMMANDS.iter().map(|arguments| tally(arguments, true));
    let operators = OF_THE_OPERATOR
        .iter()
        .map(|arguments| tally(arguments, false));
    let tallies: Vec<NameTally> = own.chain(operators).collect();
    print!("{}", format_tallies(&tallies));
}
