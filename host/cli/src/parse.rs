//! Parses the process's arguments to a command, or to a reply without one: help, version, a usage
//! fault.

use crate::args::{self, CliCommand, ColorMode, CommandLine};
use crate::exit::{CommandExit, CommandFault};
use clap::error::ErrorKind;
use clap::{FromArgMatches, ValueEnum};
use serde_json::{Value, json};
use std::ffi::OsString;

/// A reply to arguments that name no command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseReply {
    /// Help or version, on standard output.
    Text {
        /// `help` or `version`.
        name: &'static str,
        /// The text with the escapes of a terminal.
        styled: String,
        /// The text without escapes.
        plain: String,
        /// Names and values that stand below the text.
        details: Vec<(String, String)>,
    },
    /// The command line is wrong.
    Wrong {
        /// The fault, for JSON and for terminals without styles.
        fault: CommandFault,
        /// The text of clap, with the escapes of a terminal.
        styled: String,
        /// The text without escapes.
        plain: String,
    },
}

impl ParseReply {
    /// The exit code.
    pub fn exit(&self) -> CommandExit {
        match self {
            Self::Text { .. } => CommandExit::Done,
            Self::Wrong { .. } => CommandExit::Usage,
        }
    }

    /// Adds details to the version; any other reply stays as it is.
    #[must_use]
    pub fn with_version_details(mut self, added: Vec<(String, String)>) -> Self {
        if let Self::Text { name, details, .. } = &mut self
            && *name == "version"
        {
            *details = added;
        }
        self
    }

    /// Returns the one JSON document.
    pub fn to_document(&self) -> Value {
        match self {
            Self::Text {
                name,
                plain,
                details,
                ..
            } => {
                let mut document = json!({*name: plain});
                for (name, value) in details {
                    document[name.as_str()] = value.as_str().into();
                }
                document["exit"] = self.exit().code().into();
                document
            }
            Self::Wrong { fault, .. } => serde_json::to_value(fault).unwrap_or_default(),
        }
    }
}

/// Parses arguments; the first one is the program.
///
/// # Errors
/// The reply, if the arguments name no command to run.
pub fn parse(arguments: &[OsString]) -> Result<CommandLine, Box<ParseReply>> {
    let parsed = args::command()
        .try_get_matches_from(arguments)
        .and_then(|mut found| CommandLine::from_arg_matches_mut(&mut found));
    let mut parsed = parsed.map_err(|error| Box::new(to_reply(&error)))?;
    if let CliCommand::CompleteWords(asked) = &parsed.command {
        // The project is the one of the line that is typed.
        parsed.common.project = args::project_of(&asked.words);
    }
    Ok(parsed)
}

/// Returns true if `--json` is among the arguments. It is known before they are parsed, so that
/// errors are JSON, too.
pub fn wants_json(arguments: &[OsString]) -> bool {
    options(arguments).any(|argument| argument == "--json")
}

/// Returns true if `--verbose` is among the arguments, for a version that is asked for with it.
pub fn wants_details(arguments: &[OsString]) -> bool {
    options(arguments).any(|argument| argument == "--verbose" || argument == "-v")
}

/// Returns the value of `--color`, for help and errors, which are printed before there are options.
/// A value that there is not is refused by the parser.
pub fn color_mode(arguments: &[OsString]) -> ColorMode {
    let mut found = ColorMode::Auto;
    let mut is_next = false;
    for argument in options(arguments) {
        let word = argument.to_str().unwrap_or_default();
        let value = match word.strip_prefix("--color=") {
            Some(value) => Some(value),
            None => is_next.then_some(word),
        };
        let mode = value.and_then(|value| ColorMode::from_str(value, false).ok());
        found = mode.unwrap_or(found);
        is_next = word == "--color";
    }
    found
}

/// The arguments behind the program that may be options.
fn options(arguments: &[OsString]) -> impl Iterator<Item = &OsString> {
    let words = arguments.iter().skip(1);
    words.take_while(|argument| *argument != "--")
}

fn to_reply(error: &clap::Error) -> ParseReply {
    let rendered = error.render();
    let (styled, plain) = (rendered.ansi().to_string(), rendered.to_string());
    let text = |name, styled, plain| ParseReply::Text {
        name,
        styled,
        plain,
        details: Vec::new(),
    };
    match error.kind() {
        ErrorKind::DisplayHelp => text("help", styled, plain),
        ErrorKind::DisplayVersion => text("version", styled, plain.trim_end().to_owned()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => ParseReply::Wrong {
            fault: CommandFault::usage("no command is given").with_hint("see `threadkeep --help`"),
            styled,
            plain,
        },
        _ => ParseReply::Wrong {
            fault: to_fault(&plain),
            styled,
            plain,
        },
    }
}

/// Converts the text of clap to a fault: the problem on one line, and the usage as the hint.
fn to_fault(plain: &str) -> CommandFault {
    let body = plain.strip_prefix("error: ").unwrap_or(plain);
    let (wrong, rest) = body.split_once("\n\nUsage:").unwrap_or((body, ""));
    let wrong = wrong
        .split("\n\nFor more information")
        .next()
        .unwrap_or(wrong);
    let words: Vec<&str> = wrong.split_whitespace().collect();
    let usage = rest.split("\n\n").next().unwrap_or_default().lines();
    let ways: Vec<&str> = usage.map(str::trim).filter(|way| !way.is_empty()).collect();
    let hint = match ways.join(" or ").as_str() {
        "" => "see `threadkeep --help`".to_owned(),
        usage => format!("usage: {usage}"),
    };
    CommandFault::usage(words.join(" ")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{ProviderOverride, StoreKind};

    #[test]
    fn colours_are_known_before_parsing() {
        for (line, expected) in [
            ("list", ColorMode::Auto),
            ("--color never list", ColorMode::Never),
            ("list --color=always", ColorMode::Always),
            ("list --color --json", ColorMode::Auto),
            ("title a -- --color never", ColorMode::Auto),
        ] {
            assert_eq!(color_mode(&arguments(line)), expected, "{line}");
        }
    }

    fn arguments(line: &str) -> Vec<OsString> {
        std::iter::once("threadkeep")
            .chain(line.split(' ').filter(|word| !word.is_empty()))
            .map(OsString::from)
            .collect()
    }

    #[test]
    fn global_options_may_stand_anywhere() {
        for line in [
            "--project p --store memory --json --provider scripted:s list",
            "list --json --provider scripted:s --project p --store memory",
        ] {
            let parsed = parse(&arguments(line)).unwrap();
            assert_eq!(parsed.common.project.as_deref(), Some("p".as_ref()));
            assert_eq!(parsed.common.store, Some(StoreKind::Memory));
            assert_eq!(
                parsed.common.provider,
                Some(ProviderOverride::Scripted("s".into()))
            );
            assert!(parsed.common.json);
        }
    }

    #[test]
    fn a_run_with_everything() {
        let line = "run a/b --input x=1 --input y=2=3 --message hi --model fast --turns 3 --tokens \
                    4 --spend 0.5 \
                    --duration 1m --id my-1 --title t";
        let CliCommand::Run(run) = parse(&arguments(line)).unwrap().command else {
            panic!("it is a run");
        };
        assert_eq!(run.input[1], ("y".to_owned(), "2=3".to_owned()));
        assert_eq!(run.thread.caps.spend, Some(500_000_000));
        assert_eq!(run.thread.caps.duration.map(|d| d.as_secs()), Some(60));
    }

    #[test]
    fn wrong_arguments_are_usage_faults() {
        for (line, word) in [
            ("", "no command"),
            ("--json", "subcommand"),
            ("rnu", "rnu"),
            ("run", "<DIRECTIVE>"),
            ("run a b", "b"),
            ("run a --turns x", "--turns"),
            ("run a --spend -1", "-1"),
            ("run a --spend 1e3", "plain decimal"),
            ("run a --duration soon", "seconds"),
            ("run a --id -x", "does not begin with -"),
            ("run a --id=-x", "does not begin with -"),
            ("create --id --title x", "does not begin with -"),
            ("usage --by week", "week"),
            ("run a --input topic", "NAME=VALUE"),
            ("run a --store postgres", "postgres"),
            ("run a --provider openai", "scripted:FILE"),
            ("chat a b", "b"),
            ("create --input x", "NAME=VALUE"),
            ("message a", "<TEXT>"),
            ("title a", "<TEXT>"),
            ("list --status done", "[possible values: created, running,"),
            ("append a --token 7", "THREAD#NUMBER"),
            ("title a b --none", "--none"),
            ("completions tcsh", "tcsh"),
            ("list --limit 0", "0"),
            ("list --limit 1001", "1001"),
            ("list --all --limit 5", "cannot be used with"),
            ("list --since soon", "2026-03-10T12:00:00Z"),
            ("list --chain a --forks b", "cannot be used with"),
            ("list --roots --parent a", "cannot be used with"),
            ("show", "<THREAD>"),
            ("transcript a --format html", "html"),
            ("list --frobnicate", "--frobnicate"),
        ] {
            let said = parse(&arguments(line)).unwrap_err();
            let ParseReply::Wrong { fault, .. } = &*said else {
                panic!("{line:?}: {said:?}");
            };
            assert!(fault.message.contains(word), "{line:?}: {fault:?}");
            assert!(!fault.message.contains('\n'));
            assert!(fault.hint.is_some());
            assert_eq!(said.to_document()["exit"], 2, "{line:?}");
        }
    }

    #[test]
    fn both_ways_of_a_title_are_shown() {
        let said = parse(&arguments("title a")).unwrap_err();
        let hint = said.to_document()["error"]["hint"].to_string();
        assert!(
            hint.contains("title <THREAD> <TEXT> or threadkeep title <THREAD> --none"),
            "{hint}"
        );
    }

    #[test]
    fn help_and_version_are_no_errors() {
        for (line, name) in [
            ("--help", "help"),
            ("help run", "help"),
            ("run -h", "help"),
            ("-V", "version"),
        ] {
            let said = parse(&arguments(line)).unwrap_err();
            assert_eq!(said.exit(), CommandExit::Done, "{line}");
            assert!(
                said.to_document()[name]
                    .as_str()
                    .unwrap()
                    .contains("threadkeep"),
                "{line}"
            );
        }
    }

    #[test]
    fn json_is_known_before_the_arguments_are_understood() {
        assert!(wants_json(&arguments("rnu --json")));
        assert!(!wants_json(&arguments("run -- --json")));
        assert!(!wants_json(&arguments("run --jsonx")));
    }
}
