//! The answer of `usage`: sums of money and tokens.

use super::{CommandAnswer, count_noun, lacking, spend};
use crate::args::UsageKey;
use crate::exit::CommandExit;
use crate::money;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use serde::{Serialize, Serializer};

/// One sum.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UsageRow {
    /// The day in UTC, if it is summed by day.
    pub day: Option<String>,
    /// The model that replied; none for what is no reply, too.
    pub model: Option<String>,
    /// The directive; none for chats, too.
    pub directive: Option<String>,
    /// The owner of the threads; none without one, too.
    pub agent: Option<String>,
    /// Completed model calls.
    pub turns: u64,
    /// Tokens that models read, from caches too.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// Nano-USD; decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub spend: u64,
}

impl UsageRow {
    /// Returns the property of a sum.
    pub fn property(&mut self, key: UsageKey) -> &mut Option<String> {
        match key {
            UsageKey::Day => &mut self.day,
            UsageKey::Model => &mut self.model,
            UsageKey::Directive => &mut self.directive,
            UsageKey::Agent => &mut self.agent,
        }
    }

    fn describe(&self, key: UsageKey) -> String {
        let (value, without) = match key {
            UsageKey::Day => (&self.day, ""),
            UsageKey::Model => (&self.model, "(no reply)"),
            UsageKey::Directive => (&self.directive, "(chat)"),
            UsageKey::Agent => (&self.agent, "(none)"),
        };
        value.clone().unwrap_or_else(|| without.to_owned())
    }

    fn cells(&self) -> [String; 4] {
        [
            self.turns.to_string(),
            self.input_tokens.to_string(),
            self.output_tokens.to_string(),
            money::format_usd(self.spend),
        ]
    }
}

/// The answer of `usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsageAnswer {
    /// The properties by which it is summed.
    #[serde(serialize_with = "key_names")]
    pub by: Vec<UsageKey>,
    /// The sums: by day the earliest first, else the largest first.
    pub usage: Vec<UsageRow>,
    /// The sum of all.
    pub total: UsageRow,
    /// The number of threads that have used something.
    pub threads: u64,
    /// Threads that the sums lack, because their entries cannot be read.
    pub unreadable: Vec<String>,
    /// The number of others.
    pub unreadable_left_out: u64,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for UsageAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let lacks = lacking(&self.unreadable);
        if self.usage.is_empty() && lacks.is_empty() {
            screen.note("nothing was used");
            return;
        }
        let (left, right) = (ColumnAlignment::Left, ColumnAlignment::Right);
        let mut sides = vec![left; self.by.len()];
        sides.extend([right; 4]);
        let mut table = TextTable::new(&sides);
        let names = self.by.iter().map(|key| key.as_str().to_uppercase());
        let figures = ["TURNS", "INPUT", "OUTPUT", "COST"].map(str::to_owned);
        table.add_row(&names.chain(figures).collect::<Vec<_>>());
        for row in &self.usage {
            let properties = self.by.iter().map(|key| row.describe(*key));
            table.add_row(&properties.chain(row.cells()).collect::<Vec<_>>());
        }
        let mut total = vec![String::new(); self.by.len()];
        total[0] = "total".to_owned();
        total.extend(self.total.cells());
        table.add_row(&total);
        for line in table.lines() {
            screen.print_line(&line);
        }
        screen.note(&format!("{}{lacks}", count_noun(self.threads, "thread")));
    }
}

fn key_names<S: Serializer>(keys: &[UsageKey], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().map(|key| key.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn sums_are_an_aligned_table_with_a_total() {
        let row = |day: &str, model: Option<&str>, spend| UsageRow {
            day: Some(day.to_owned()),
            model: model.map(str::to_owned),
            turns: 2,
            input_tokens: 1_000,
            output_tokens: 30,
            spend,
            ..UsageRow::default()
        };
        let answer = UsageAnswer {
            by: vec![UsageKey::Day, UsageKey::Model],
            usage: vec![
                row("2026-03-10", Some("tiny"), 310_000),
                row("2026-03-11", None, 20_000_000_000),
            ],
            total: UsageRow {
                turns: 4,
                input_tokens: 2_000,
                output_tokens: 60,
                spend: 20_000_310_000,
                ..UsageRow::default()
            },
            threads: 1,
            unreadable: vec!["bad".to_owned()],
            unreadable_left_out: 0,
            exit: CommandExit::Done,
        };
        let (mut person, out, err) = screen(false, true);
        person.print_answer(&answer);
        assert_eq!(
            out.text().lines().collect::<Vec<_>>(),
            [
                "DAY         MODEL       TURNS  INPUT  OUTPUT          COST",
                "2026-03-10  tiny            2   1000      30   0.00031 USD",
                "2026-03-11  (no reply)      2   1000      30     20.00 USD",
                "total                       4   2000      60  20.00031 USD",
            ]
        );
        assert_eq!(err.text(), "1 thread, without bad, which cannot be read\n");
        let json = serde_json::to_value(&answer).unwrap();
        assert_eq!(json["by"], serde_json::json!(["day", "model"]));
        assert_eq!(json["usage"][1]["spend"], "20.00");
        assert_eq!(json["total"]["model"], serde_json::Value::Null);
    }
}
