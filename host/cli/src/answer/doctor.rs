//! `doctor`: what is configured, where each value came from, what works, what is missing and how to mend it.

use super::Answer;
use crate::exit::Exit;
use crate::screen::Screen;
use crate::table::{Side, Table};
use serde::Serialize;

/// How it stands with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works, or is only told.
    Ok,
    /// It works and somebody should know.
    Warning,
    /// It does not work.
    Bad,
}

/// One thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What.
    pub name: String,
    /// What it is. Never a secret.
    pub value: String,
    /// Where the value came from.
    pub origin: Option<String>,
    /// How it stands.
    pub state: State,
}

/// Things that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    /// `engine`, `project`, `models`, `store`, `limits`, `tools`, `locks`, `documents`.
    pub name: String,
    /// In a fixed order.
    pub items: Vec<Item>,
}

impl Section {
    /// An empty section.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            items: Vec::new(),
        }
    }

    /// Add a thing.
    pub fn item(
        &mut self,
        state: State,
        name: &str,
        value: impl Into<String>,
        origin: Option<&str>,
    ) {
        self.items.push(Item {
            name: name.to_owned(),
            value: value.into(),
            origin: origin.map(str::to_owned),
            state,
        });
    }

    /// Add a thing that works.
    pub fn ok(&mut self, name: &str, value: impl Into<String>) {
        self.item(State::Ok, name, value, None);
    }

    /// Add a thing that works, with where it came from.
    pub fn from(&mut self, name: &str, value: impl Into<String>, origin: &str) {
        self.item(State::Ok, name, value, Some(origin));
    }
}

/// Something that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// How to mend it.
    pub mend: String,
    /// Everything that works does so without it.
    pub optional: bool,
}

/// What could be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Runnable {
    /// A directive, on a model whose provider works.
    pub directives: bool,
    /// A chat.
    pub chats: bool,
    /// A loop of one's own, which needs no model of the project.
    pub own_loops: bool,
}

impl Runnable {
    /// Something could be run.
    pub fn any(self) -> bool {
        self.directives || self.chats || self.own_loops
    }

    fn shown(self) -> &'static str {
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

/// What `doctor` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// In a fixed order.
    pub sections: Vec<Section>,
    /// What is missing or wrong, and how to mend it.
    pub missing: Vec<Missing>,
    /// True if something could be run.
    pub works: bool,
    /// What.
    pub runs: Runnable,
    /// How the process ends: 0 if something could be run.
    pub exit: Exit,
}

impl Answer for Diagnosis {
    fn exit(&self) -> Exit {
        self.exit
    }

    fn print(&self, screen: &mut Screen) {
        for section in &self.sections {
            screen.line(&section.name);
            let mut table = Table::new(&[Side::Left, Side::Left, Side::Left]);
            for item in &section.items {
                let mark = match item.state {
                    State::Ok => "  ",
                    State::Warning => "? ",
                    State::Bad => "! ",
                };
                let value = match &item.origin {
                    Some(origin) => format!("{} (from {origin})", item.value),
                    None => item.value.clone(),
                };
                table.row(&[mark, &item.name, &value]);
            }
            for line in table.lines() {
                screen.line(&line);
            }
            screen.line("");
        }
        if self.missing.is_empty() {
            screen.line("nothing is missing");
        }
        for missing in &self.missing {
            let word = if missing.optional { "note" } else { "missing" };
            screen.line(&format!("{word:>7}: {}", missing.what));
            screen.line(&format!("   mend: {}", missing.mend));
        }
        screen.line(self.runs.shown());
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
            let runs = Runnable {
                directives,
                chats,
                own_loops,
            };
            assert!(runs.shown().starts_with(shown), "{runs:?}");
            assert_eq!(
                runs.any(),
                own_loops,
                "whatever runs needs what a loop needs"
            );
        }
    }

    #[test]
    fn a_diagnosis_ends_with_what_is_missing() {
        let mut section = Section::new("models");
        section.from("table", "3 models", "the built-in table");
        section.item(State::Bad, "openai key", "not set", Some("OPENAI_API_KEY"));
        let diagnosis = Diagnosis {
            sections: vec![section],
            missing: vec![Missing {
                what: "OPENAI_API_KEY is not set".to_owned(),
                mend: "export it".to_owned(),
                optional: false,
            }],
            works: false,
            runs: Runnable::default(),
            exit: Exit::Error,
        };
        let (mut person, out, _) = screen(false, false);
        assert_eq!(person.answer(&diagnosis), Exit::Error);
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
