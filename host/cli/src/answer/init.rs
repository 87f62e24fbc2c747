//! `init`: the files of a new project.

use super::CommandAnswer;
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use serde::Serialize;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InitFileState {
    /// It was not there.
    Written,
    /// It was there, and stays as it is.
    Kept,
    /// It was there, and a line was added.
    Extended,
}

impl InitFileState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Kept => "kept",
            Self::Extended => "extended",
        }
    }
}

/// A file of the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitFileRow {
    /// Its path in the project.
    pub path: String,
    /// What became of it.
    pub state: InitFileState,
}

/// The answer of `init`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitAnswer {
    /// The directory of the project.
    pub project: String,
    /// The files of a project.
    pub files: Vec<InitFileRow>,
    /// The model that a written model table takes by default.
    pub model: String,
    /// The variables with keys of known providers that are set.
    pub keys: Vec<String>,
    /// All such variables.
    #[serde(skip)]
    pub keys_known: Vec<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for InitAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let mut table = TextTable::new(&[ColumnAlignment::Left, ColumnAlignment::Left]);
        for file in &self.files {
            table.add_row(&[file.state.as_str(), &file.path]);
        }
        for line in table.lines() {
            screen.print_line(&line);
        }
        screen.note(&match self.keys.is_empty() {
            true => format!(
                "next: set {}, then threadkeep chat; threadkeep doctor says what is missing",
                self.keys_known.join(" or ")
            ),
            false => {
                "next: threadkeep chat, or threadkeep run describe --input file=NAME".to_owned()
            }
        });
    }
}
