//! `recover`, `repair`, `demo` and `completions`.

use super::count_noun;
use super::{ChargedRow, CommandAnswer, HeldRow, RunAnswer, UnreadableRow};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;

/// The answer of `recover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoverAnswer {
    /// Threads whose run was closed: suspended with the code `recovered`, or ended.
    pub recovered: Vec<String>,
    /// Those of them that have ended thereby: a cancel or a kill had waited for their holder.
    pub ended: Vec<String>,
    /// Charges for calls that those runs left under way.
    pub charged: Vec<ChargedRow>,
    /// Threads that processes hold which are not known to be dead: the newest.
    pub held: Vec<HeldRow>,
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
        for row in &self.charged {
            screen.note(&row.describe(""));
        }
        for row in &self.held {
            row.note(screen);
        }
        screen.note(&self.summarize());
        for top in &self.left {
            screen.note(&format!(
                "{top} has ended, threads below it have not: threadkeep resume {top} goes on with \
                 them"
            ));
        }
    }
}

impl RecoverAnswer {
    /// Says how many runs were closed, and what to do next.
    fn summarize(&self) -> String {
        let mut go_on = self.recovered.iter().filter(|id| !self.ended.contains(id));
        let closed = match (self.recovered.as_slice(), self.ended.len()) {
            ([], _) if !self.unreadable.is_empty() => {
                return "next: threadkeep audit, which says of every record that is wrong what to \
                        do"
                .to_owned();
            }
            ([], _) => return "nothing to recover: no run is held by a dead process".to_owned(),
            (all, 0) => format!("{} recovered", count_noun(all.len() as u64, "thread")),
            ([_], _) => {
                "1 thread recovered; a cancel or kill had waited, and it has ended".to_owned()
            }
            (all, ended) => format!(
                "{} recovered; of {ended} a cancel or kill had waited, and they have ended",
                count_noun(all.len() as u64, "thread")
            ),
        };
        match (go_on.next(), go_on.next()) {
            (None, _) => closed,
            (Some(one), None) => format!("{closed}; next: threadkeep resume {one}"),
            (Some(_), Some(_)) => format!("{closed}; next: threadkeep resume THREAD"),
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
        let own = match screen.properties().is_native {
            true => {
                "Your own: write .ai/directives/NAME.md, see what is missing with `threadkeep \
                 doctor`,"
            }
            false => "Your own: write .ai/directives/NAME.md,",
        };
        screen.print_line(own);
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

/// The answer of `man`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManAnswer {
    /// The words of the command; none for the program itself.
    pub command: Vec<String>,
    /// Its page, in the language of man.
    pub page: String,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for ManAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        screen.print_text(&self.page);
    }
}

/// Names that a word may be, for the script of a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamesAnswer {
    /// The names.
    pub names: Vec<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for NamesAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        for name in &self.names {
            screen.print_line(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn recovered_threads_are_lines_and_the_rest_is_beside_them() {
        // Symptom: a resume was advised of a thread that the recovery had just cancelled.
        for (recovered, ended, out_text, word, resumes) in [
            (vec![], vec![], "", "nothing", false),
            (vec!["a"], vec![], "a\n", "resume a", true),
            (vec!["a"], vec!["a"], "a\n", "it has ended", false),
            (vec!["a", "b"], vec![], "a\nb\n", "resume THREAD", true),
            (vec!["a", "b"], vec!["a"], "a\nb\n", "resume b", true),
            (
                vec!["a", "b"],
                vec!["a", "b"],
                "a\nb\n",
                "of 2 a cancel",
                false,
            ),
        ] {
            let (mut person, out, err) = screen(false, false);
            let owned = |ids: Vec<&str>| ids.into_iter().map(str::to_owned).collect();
            person.print_answer(&RecoverAnswer {
                recovered: owned(recovered),
                ended: owned(ended),
                charged: Vec::new(),
                held: Vec::new(),
                unreadable: Vec::new(),
                left: vec!["t".to_owned()],
                exit: CommandExit::Done,
            });
            assert_eq!(out.text(), out_text);
            for word in [word, "threadkeep resume t goes on"] {
                assert!(err.text().contains(word), "{}", err.text());
            }
            let advised = err.text().contains("next: threadkeep resume");
            assert_eq!(advised, resumes, "{}", err.text());
        }
    }
}
