//! The help of every command: its width, the order of its parts, and an example for each.

use super::CommandLine;
use clap::{Command, CommandFactory};

/// Widest line of a help, in columns: that of a terminal of the usual size.
pub const HELP_WIDTH: usize = 80;

/// The heading of the options that every command has, which stand behind its own.
const GLOBAL_HEADING: &str = "Options of every command";

/// Examples of the commands whose own text has none.
const EXAMPLES: [(&str, &str); 20] = [
    ("resume", "threadkeep resume @last 'And in one word?'"),
    (
        "message",
        "threadkeep message describe-17 'Use metric units.'",
    ),
    ("show", "threadkeep show @last --events 20 --utc"),
    (
        "transcript",
        "threadkeep transcript @last --last 5 --follow",
    ),
    ("state", "threadkeep state my-chat --at 7"),
    ("checkpoints", "threadkeep checkpoints my-chat --limit 5"),
    ("raise", "threadkeep raise @last --turns 40 --spend 0.50"),
    (
        "close",
        "threadkeep close my-chat completed --result '{\"lines\": 12}'",
    ),
    ("title", "threadkeep title @last 'Shopping for Sunday'"),
    ("cancel", "threadkeep cancel describe-17"),
    ("kill", "threadkeep kill describe-17"),
    ("budget show", "threadkeep budget show @last"),
    (
        "budget hold",
        "threadkeep budget hold my-chat turn-1 --amount 0.02",
    ),
    (
        "budget settle",
        "threadkeep budget settle my-chat 12 --amount 0.013",
    ),
    ("budget release", "threadkeep budget release my-chat 12"),
    ("tree", "threadkeep tree @last"),
    ("recover", "threadkeep recover --dead native-1a2b3c/1"),
    ("repair", "threadkeep repair @last"),
    ("audit", "threadkeep audit --json"),
    ("doctor", "threadkeep doctor --probe openai"),
];

/// Examples of the command itself, and of those that take no argument.
const PLAIN_EXAMPLES: [(&str, &str); 2] = [
    ("", "threadkeep run describe --input file=notes.txt"),
    ("demo", "threadkeep demo"),
];

/// Builds the command line as it is parsed and as its help shows it.
pub fn command() -> Command {
    let command = CommandLine::command().max_term_width(HELP_WIDTH);
    let command = command.mut_args(|arg| match arg.is_global_set() {
        true => arg.help_heading(GLOBAL_HEADING),
        false => arg,
    });
    with_examples(with_example(command, ""), "")
}

/// Adds the examples to a command and to those below it; `path` is what is typed before its name.
fn with_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        let path = format!("{path}{name}");
        command.mut_subcommand(name, |below| {
            let below = with_example(below, &path);
            with_examples(below, &format!("{path} "))
        })
    })
}

fn with_example(command: Command, path: &str) -> Command {
    let mut examples = EXAMPLES.iter().chain(&PLAIN_EXAMPLES);
    let Some((_, example)) = examples.find(|(name, _)| *name == path) else {
        return command;
    };
    let text = command.get_after_help().map(ToString::to_string);
    let text = text.map_or_else(String::new, |text| format!("{}\n\n", text.trim_end()));
    command.after_help(format!("{text}  {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Visits a command and all below it, with what is typed to run each.
    fn walk(command: &mut Command, path: &str, visit: &mut impl FnMut(&str, &mut Command)) {
        visit(path, command);
        let names: Vec<String> = command
            .get_subcommands()
            .map(|below| below.get_name().to_owned())
            .filter(|name| name != "help")
            .collect();
        for name in names {
            let below = command.find_subcommand_mut(&name).expect("it is there");
            walk(below, &format!("{path} {name}"), visit);
        }
    }

    #[test]
    fn every_help_fits_a_terminal_and_has_an_example() {
        let mut command = command();
        command.build();
        let mut visited = 0;
        walk(&mut command, "threadkeep", &mut |path, command| {
            visited += 1;
            // An example that is broken over lines could not be copied.
            let text = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            for line in text.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= HELP_WIDTH, "{path}: {line}");
            }
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                for line in help.lines() {
                    assert!(line.chars().count() <= HELP_WIDTH, "{path}: {line}");
                }
                let example = help.lines().any(|line| {
                    line.starts_with("  ") && line.contains(path) && !line.contains("Usage")
                });
                assert!(example, "{path} has no example:\n{help}");
            }
        });
        assert!(visited > 30, "{visited} commands");
    }

    #[test]
    fn own_options_stand_before_those_of_every_command() {
        let mut command = command();
        command.build();
        walk(&mut command, "threadkeep", &mut |path, command| {
            let help = command.render_help().to_string();
            let heading = help.find(GLOBAL_HEADING).expect("it has them");
            let project = help.find("--project").expect("it is global");
            assert!(heading < project, "{path}");
            for arg in command.get_opts().filter(|arg| !arg.is_global_set()) {
                let Some(name) = arg.get_long().filter(|_| !arg.is_hide_set()) else {
                    continue;
                };
                let at = help.find(&format!("--{name}"));
                assert!(at.is_some_and(|at| at < heading), "{path} --{name}\n{help}");
            }
        });
    }

    #[test]
    fn no_example_is_of_a_command_that_is_gone() {
        let mut command = command();
        command.build();
        let mut paths = Vec::new();
        walk(&mut command, "", &mut |path, _| {
            paths.push(path.trim_start().to_owned())
        });
        for (path, _) in EXAMPLES.iter().chain(&PLAIN_EXAMPLES) {
            assert!(paths.iter().any(|found| found == path), "{path}");
        }
    }
}
