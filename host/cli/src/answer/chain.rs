//! `chain`: the threads in which one goes on.

use super::{CommandAnswer, count_noun};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use crate::time_format;
use serde::Serialize;
use serde_json::Value;

/// The answer of `chain`. Its fields are those that the tool `get_chain` gives an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChainAnswer {
    /// True: what cannot be read is an error.
    pub success: bool,
    /// Number of links.
    pub chain_length: u64,
    /// The links, the first at first.
    pub chain: Vec<Value>,
    /// Id of the last link.
    pub tip: Value,
    /// Turns, tokens and money of all links.
    pub totals: Value,
    /// The account that the chain draws on.
    pub account: Value,
    /// The exit code.
    pub exit: CommandExit,
    /// The thread that was named.
    #[serde(skip)]
    pub named: String,
}

impl CommandAnswer for ChainAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let (left, right) = (ColumnAlignment::Left, ColumnAlignment::Right);
        let mut table = TextTable::new(&[right, left, left, right, right, right, left, left]);
        table.add_row(&[
            "LINK",
            "THREAD",
            "STATUS",
            "TURNS",
            "TOKENS",
            "COST",
            "CREATED",
            "CONTINUED",
        ]);
        let now = screen.now();
        for (n, link) in (1_u64..).zip(&self.chain) {
            table.add_row(&[
                n.to_string(),
                text(link, "/thread_id").to_owned(),
                text(link, "/status").to_owned(),
                number(link, "/cost/turns").to_string(),
                tokens(link, "/cost").to_string(),
                dollars(link, "/cost/spend"),
                time_format::format_relative(text(link, "/created"), now),
                describe_continuation(link),
            ]);
        }
        for line in table.lines() {
            screen.print_line(&line);
        }
        screen.print_line("");
        screen.print_line(&self.describe_totals());
        let tip = self.tip.as_str().unwrap_or_default();
        if !tip.eq_ignore_ascii_case(&self.named) {
            screen.note(&format!("{} was continued in {tip}", self.named));
        }
    }
}

impl ChainAnswer {
    fn describe_totals(&self) -> String {
        let totals = &self.totals;
        let account = &self.account;
        let of = match account.pointer("/limit").and_then(Value::as_str) {
            Some(limit) => format!("{limit} USD, {} left", dollars(account, "/remaining")),
            None => "no limit".to_owned(),
        };
        format!(
            "{}, {}, {} tokens, {}; account of {}: {} spent of {of}",
            count_noun(self.chain_length, "link"),
            count_noun(number(totals, "/turns"), "turn"),
            tokens(totals, ""),
            dollars(totals, "/spend"),
            text(account, "/chain"),
            dollars(account, "/spent"),
        )
    }
}

fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    let found = value.pointer(place).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn number(value: &Value, place: &str) -> u64 {
    let found = value.pointer(place).and_then(Value::as_u64);
    found.unwrap_or_default()
}

fn dollars(value: &Value, place: &str) -> String {
    format!("{} USD", text(value, place))
}

/// Adds up the tokens of a cost.
fn tokens(value: &Value, place: &str) -> u64 {
    let sum = |name: &str| number(value, &format!("{place}/{name}"));
    sum("input_tokens").saturating_add(sum("output_tokens"))
}

/// Says how a link was continued, and at which version.
fn describe_continuation(link: &Value) -> String {
    let how = match text(link, "/continued/how") {
        "" => return String::new(),
        "handed-off" => "handed off",
        how => how,
    };
    match link.pointer("/continued/version").and_then(Value::as_u64) {
        Some(version) => format!("{how} at version {version}"),
        None => how.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;
    use serde_json::json;

    fn link(id: &str, status: &str, continued: Value) -> Value {
        json!({"thread_id": id, "status": status, "continued": continued,
            "cost": {"turns": 2, "input_tokens": 30, "output_tokens": 4, "spend": "0.0005"},
            "created": "2026-01-02T03:04:05Z"})
    }

    #[test]
    fn a_person_sees_links_money_and_where_it_goes_on() {
        let answer = ChainAnswer {
            success: true,
            chain_length: 3,
            chain: vec![
                link(
                    "a-1",
                    "continued",
                    json!({"how": "handed-off", "version": 12}),
                ),
                link("a-2", "error", json!({"how": "resumed", "version": null})),
                link("a-3", "idle", Value::Null),
            ],
            tip: json!("a-3"),
            totals: json!({"turns": 6, "input_tokens": 90, "output_tokens": 12, "spend": "0.0015"}),
            account: json!({"chain": "a-1", "limit": "1.00", "spent": "0.0015",
                "remaining": "0.9985"}),
            exit: CommandExit::Done,
            named: "a-1".to_owned(),
        };
        let (mut person, out, err) = screen(false, true);
        person.print_answer(&answer);
        let shown = out.text();
        for part in [
            "   1  a-1     continued      2      34  0.0005 USD",
            "handed off at version 12\n",
            "resumed\n",
            "3 links, 6 turns, 102 tokens, 0.0015 USD; account of a-1: 0.0015 USD spent of \
             1.00 USD, 0.9985 USD left\n",
        ] {
            assert!(shown.contains(part), "{part:?} is not in {shown}");
        }
        assert_eq!(err.text(), "a-1 was continued in a-3\n");
    }
}
