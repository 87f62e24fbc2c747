//! `recover`, `repair`, `demo` and `completions`.

use super::{CommandAnswer, RunAnswer, UnreadableRow};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;

/// The answer of `recover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoverAnswer {
    /// Threads whose run was closed: suspended, code `recovered`.
    pub recovered: Vec<String>,
    /// Threads whose records cannot be read, so that they were not checked, or not told of an end.
    pub unreadable: Vec<UnreadableRow>,
    /// Threads that have ended while threads below them have not, and that no process drives.
    pub left: Vec<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for RecoverAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        for row in &self.unreadable {
            row.warn(screen);
        }
        for thread in &self.recovered {
            screen.print_line(thread);
        }
        let next = match self.recovered.as_slice() {
            [] if !self.unreadable.is_empty() => {
                "next: threadkeep audit, which says of every record that is wrong what to do"
                    .to_owned()
            }
            [] => "nothing to recover: no run is held by a dead process".to_owned(),
            [one] => format!("1 thread recovered; next: threadkeep resume {one}"),
            many => format!(
                "{} threads recovered; next: threadkeep resume THREAD",
                many.len()
            ),
        };
        screen.note(&next);
        for top in &self.left {
            screen.note(&format!(
                "{top} has ended, threads below it have not: threadkeep resume {top} goes on with \
                 them"
            ));
        }
    }
}

/// The answer of `repair`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairAnswer {
    /// Threads whose documents were written anew.
    pub repaired: Vec<String>,
    /// Threads whose documents could not be written, and why.
    pub failed: Vec<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for RepairAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        for thread in &self.repaired {
            screen.print_line(thread);
        }
        for failed in &self.failed {
            screen.warn(failed);
        }
        let plural = if self.repaired.len() == 1 { "" } else { "s" };
        screen.note(&format!(
            "the documents of {} thread{plural} were written anew",
            self.repaired.len()
        ));
    }
}

/// The answer of `demo`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DemoAnswer {
    /// The run.
    pub run: RunAnswer,
    /// Its transcript, as Markdown.
    pub transcript: String,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for DemoAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    /// Prints the next steps for the user: everything else was shown as it happened.
    fn print(&self, screen: &mut OutputScreen) {
        screen.print_line(
            "Your own: write .ai/directives/NAME.md, see what is missing with `threadkeep doctor`,",
        );
        screen.print_line("then `threadkeep run NAME`.");
    }
}

/// The answer of `completions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CompletionsAnswer {
    /// The shell.
    pub shell: String,
    /// The script for the shell.
    pub script: String,
    /// The exit code.
    pub exit: CommandExit,
}

impl CompletionsAnswer {
    /// The answer with the script of a shell.
    pub fn new(shell: String, script: String) -> Self {
        Self {
            shell,
            script,
            exit: CommandExit::Done,
        }
    }
}

impl CommandAnswer for CompletionsAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        screen.print_text(&self.script);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn recovered_threads_are_lines_and_the_rest_is_beside_them() {
        for (recovered, out_text, word) in [
            (vec![], "", "nothing"),
            (vec!["a"], "a\n", "resume a"),
            (vec!["a", "b"], "a\nb\n", "2 threads"),
        ] {
            let (mut person, out, err) = screen(false, false);
            person.print_answer(&RecoverAnswer {
                recovered: recovered.into_iter().map(str::to_owned).collect(),
                unreadable: Vec::new(),
                left: vec!["t".to_owned()],
                exit: CommandExit::Done,
            });
            assert_eq!(out.text(), out_text);
            for word in [word, "threadkeep resume t goes on"] {
                assert!(err.text().contains(word), "{}", err.text());
            }
        }
    }
}
