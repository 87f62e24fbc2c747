//! Signals to threads: raise, cancel, kill and message.

use super::thread::LimitsView;
use super::{CommandAnswer, UnreadableRow};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;

/// The answer of `raise`, `cancel`, `kill` and `message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignalAnswer {
    /// The thread.
    pub thread_id: String,
    /// The same thread, if an earlier link of its chain was named.
    pub continued_in: Option<String>,
    /// `raise`, `cancel`, `kill` or `message`.
    pub signal: String,
    /// Its status now. A cancel of a running thread takes effect within seconds, or when its tools
    /// are done.
    pub status: String,
    /// Caps in force.
    pub limits: LimitsView,
    /// Length of its history.
    pub version: u64,
    /// Threads that were not told of the end, as their records cannot be read.
    pub unreadable: Vec<UnreadableRow>,
    /// The reason why the threads below it could not all be told of the end, if there is one.
    pub not_told: Option<String>,
    /// True if it is suspended, has reached none of its caps any more, and a resume would not only
    /// repeat what has failed.
    #[serde(skip)]
    pub can_go_on: bool,
    /// True if an external loop of its host holds it.
    #[serde(skip)]
    pub own_loop: bool,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for SignalAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let id = &self.thread_id;
        screen.print_line(&match (self.signal.as_str(), self.status.as_str()) {
            ("raise", status) => format!("{id} is {status}; caps: {}", self.limits.describe()),
            ("message", "running") => format!("{id} gets it before its next turn"),
            ("message", status) => format!("{id} is {status} and has it"),
            (_, "running") if self.own_loop => {
                format!("{id} ends when the loop that holds it appends or closes")
            }
            (_, "running") => {
                format!(
                    "{id} ends: a model call under way is dropped by the process that runs it, if \
                     that is the native program; tools finish first"
                )
            }
            (_, status) => format!("{id} is {status}"),
        });
        let waits = matches!(self.status.as_str(), "idle" | "created");
        for row in &self.unreadable {
            row.warn_not_told(screen);
        }
        if let Some(error) = &self.not_told {
            screen.note(&format!(
                "its children could not all be told ({error}): `threadkeep recover` tells them"
            ));
        }
        if self.can_go_on || (self.signal == "message" && waits) {
            screen.note(&format!("next: threadkeep resume {id}"));
        }
    }
}
