//! `doctor`: the configuration, the origin of each value, what works, what is missing and how to
//! fix it.

use super::CommandAnswer;
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use serde::Serialize;

/// The state of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// It works, or is only information.
    Ok,
    /// It works, but the operator should know about it.
    Warning,
    /// It does not work.
    Bad,
}

/// One item of a section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorItem {
    /// Its name.
    pub name: String,
    /// Its value. Never a secret.
    pub value: String,
    /// The origin of the value.
    pub origin: Option<String>,
    /// Its state.
    pub state: ItemState,
}

/// Items that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorSection {
    /// `engine`, `project`, `models`, `store`, `limits`, `tools`, `locks`, `documents`.
    pub name: String,
    /// The items, in a fixed order.
    pub items: Vec<DoctorItem>,
}

impl DoctorSection {
    /// An empty section.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            items: Vec::new(),
        }
    }

    /// Adds an item.
    pub fn add_item(
        &mut self,
        state: ItemState,
        name: &str,
        value: impl Into<String>,
        origin: Option<&str>,
    ) {
        self.items.push(DoctorItem {
            name: name.to_owned(),
            value: value.into(),
            origin: origin.map(str::to_owned),
            state,
        });
    }

    /// Adds an item that works.
    pub fn add_ok(&mut self, name: &str, value: impl Into<String>) {
        self.add_item(ItemState::Ok, name, value, None);
    }

    /// Adds an item that works, with its origin.
    pub fn add_with_origin(&mut self, name: &str, value: impl Into<String>, origin: &str) {
        self.add_item(ItemState::Ok, name, value, Some(origin));
    }
}

/// A problem: something that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorProblem {
    /// The problem.
    pub what: String,
    /// The way to fix it.
    pub mend: String,
    /// True if everything that works does so without it.
    pub optional: bool,
}

/// The kinds of runs that are possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RunnableKinds {
    /// A directive, on a model whose provider works.
    pub directives: bool,
    /// A chat.
    pub chats: bool,
    /// An external loop, which needs no model of the project.
    pub own_loops: bool,
}

impl RunnableKinds {
    /// Returns true if any kind of run is possible.
    pub fn any(self) -> bool {
        self.directives || self.chats || self.own_loops
    }

    fn describe(self) -> &'static str {
        match (self.directives, self.chats, self.own_loops) {
            (true, ..) => "a directive can be run",
            (false, true, _) => "a chat can be run, and no directive yet",
            (false, false, true) => {
                "a loop of your own can be run (`threadkeep open`); no provider answers yet"
            }
            (false, false, false) => "nothing can be run yet",
        }
    }
}

/// The answer of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorAnswer {
    /// The sections, in a fixed order.
    pub sections: Vec<DoctorSection>,
    /// The problems, and the way to fix each.
    pub missing: Vec<DoctorProblem>,
    /// True if any kind of run is possible.
    pub works: bool,
    /// The kinds of runs that are possible.
    pub runs: RunnableKinds,
    /// The exit code: 0 if any kind of run is possible.
    pub exit: CommandExit,
}

impl CommandAnswer for DoctorAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        for section in &self.sections {
            screen.print_line(&section.name);
            let mut table = TextTable::new(&[
                ColumnAlignment::Left,
                ColumnAlignment::Left,
                ColumnAlignment::Left,
            ]);
            for item in &section.items {
                let mark = match item.state {
                    ItemState::Ok => "  ",
                    ItemState::Warning => "? ",
                    ItemState::Bad => "! ",
                };
                let value = match &item.origin {
                    Some(origin) => format!("{} (from {origin})", item.value),
                    None => item.value.clone(),
                };
                table.add_row(&[mark, &item.name, &value]);
            }
            for line in table.lines() {
                screen.print_line(&line);
            }
            screen.print_line("");
        }
        if self.missing.is_empty() {
            screen.print_line("nothing is missing");
        }
        for missing in &self.missing {
            let word = if missing.optional { "note" } else { "missing" };
            screen.print_line(&format!("{word:>7}: {}", missing.what));
            screen.print_line(&format!("   mend: {}", missing.mend));
        }
        screen.print_line(self.runs.describe());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn the_last_line_says_what_can_be_run() {
        for (directives, chats, own_loops, shown) in [
            (true, true, true, "a directive can be run"),
            (false, true, true, "a chat can be run"),
            (false, false, true, "a loop of your own"),
            (false, false, false, "nothing can be run yet"),
        ] {
            let runs = RunnableKinds {
                directives,
                chats,
                own_loops,
            };
            assert!(runs.describe().starts_with(shown), "{runs:?}");
            assert_eq!(
                runs.any(),
                own_loops,
                "whatever runs needs what a loop needs"
            );
        }
    }

    #[test]
    fn a_diagnosis_ends_with_what_is_missing() {
        let mut section = DoctorSection::new("models");
        section.add_with_origin("table", "3 models", "the built-in table");
        section.add_item(
            ItemState::Bad,
            "openai key",
            "not set",
            Some("OPENAI_API_KEY"),
        );
        let diagnosis = DoctorAnswer {
            sections: vec![section],
            missing: vec![DoctorProblem {
                what: "OPENAI_API_KEY is not set".to_owned(),
                mend: "export it".to_owned(),
                optional: false,
            }],
            works: false,
            runs: RunnableKinds::default(),
            exit: CommandExit::Error,
        };
        let (mut person, out, _) = screen(false, false);
        assert_eq!(person.print_answer(&diagnosis), CommandExit::Error);
        assert_eq!(
            out.text().lines().collect::<Vec<_>>(),
            [
                "models",
                "    table       3 models (from the built-in table)",
                "!   openai key  not set (from OPENAI_API_KEY)",
                "",
                "missing: OPENAI_API_KEY is not set",
                "   mend: export it",
                "nothing can be run yet",
            ]
        );
        let json = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(json["sections"][0]["items"][1]["state"], "bad");
        assert_eq!(json["exit"], 1);
    }
}
