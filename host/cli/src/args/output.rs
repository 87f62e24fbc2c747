//! The options about what a command prints.

use clap::{Args, ValueEnum};

/// The options about what a command prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct OutputArgs {
    /// Colours: where a terminal is, unless NO_COLOR is set; always; or never [default: auto]
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub color: ColorMode,
    /// Print answers, warnings and errors, and no progress
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more: the project that was taken, and how long each step took
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

/// Whether output has colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorMode {
    /// On a terminal, unless the environment says no.
    #[default]
    Auto,
    /// Everywhere, also in a file or a pipe.
    Always,
    /// Nowhere.
    Never,
}

impl ColorMode {
    /// Returns whether a stream has colours. `terminal`: the stream is one; `variable` reads the
    /// environment. `NO_COLOR` (no-color.org) and a terminal without escapes turn `Auto` off.
    pub fn allows(self, terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
                terminal && !refused && variable("TERM").as_deref() != Some("dumb")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_option_terminal_and_environment() {
        for (mode, terminal, name, expected) in [
            (ColorMode::Auto, true, "", true),
            (ColorMode::Auto, false, "", false),
            (ColorMode::Auto, true, "NO_COLOR", false),
            (ColorMode::Auto, true, "TERM", false),
            (ColorMode::Always, false, "NO_COLOR", true),
            (ColorMode::Never, true, "", false),
        ] {
            let variable = |asked: &str| {
                let set = asked == name;
                set.then(|| if name == "TERM" { "dumb" } else { "1" }.to_owned())
            };
            assert_eq!(mode.allows(terminal, variable), expected, "{mode:?} {name}");
        }
        let empty = |_: &str| Some(String::new());
        assert!(ColorMode::Auto.allows(true, empty), "an empty one is unset");
    }
}
