//! The costs that the entries of one history record: settled and charged attempts, tools, and
//! corrections.
//!
//! A correction replaces the charge that it corrects, at the time of the charge: so no sum of a day
//! is ever below zero, and the sums of all days are what the ledger says.

use serde::Deserialize;
use std::borrow::Cow;

/// One cost, at the time of the entry that records it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct EntryCost {
    /// Seconds since 1970.
    pub(super) seconds: i64,
    /// The model whose reply it is; none without a whole reply, and for tools.
    pub(super) model: Option<String>,
    /// Nano-USD.
    pub(super) spend: u64,
    /// Tokens.
    pub(super) tokens: StoredUsage,
    /// True for a completed model call that is a turn.
    pub(super) is_turn: bool,
    /// The version that admitted the attempt; 0 for a tool.
    pub(super) attempt: u64,
}

/// Tokens by kind, as an entry has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct StoredUsage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) read: u64,
    pub(super) write: u64,
    pub(super) reasoning: u64,
}

/// The fields of a stored entry that tell of money.
#[derive(Debug, Deserialize)]
struct StoredEntry<'a> {
    time: StoredTime,
    #[serde(default)]
    settled: Option<StoredSettlement>,
    #[serde(default)]
    charged: Vec<StoredSettlement>,
    #[serde(default, borrow)]
    events: Vec<StoredEvent<'a>>,
}

#[derive(Debug, Deserialize)]
struct StoredTime {
    seconds: i64,
}

#[derive(Debug, Deserialize)]
struct StoredSettlement {
    version: u64,
    spend: u64,
    #[serde(default)]
    usage: Option<StoredUsage>,
}

/// An event; the fields of other types than those that tell of money are passed over.
#[derive(Debug, Deserialize)]
struct StoredEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    version: u64,
    #[serde(default, borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    spend: u64,
    #[serde(default)]
    cost: u64,
    #[serde(default)]
    usage: Option<StoredUsage>,
    #[serde(default)]
    summary: bool,
}

/// Reads the entries of one history, in their order.
#[derive(Debug, Default)]
pub(super) struct CostReader {
    costs: Vec<EntryCost>,
}

impl EntryCost {
    /// False for an attempt that failed and cost nothing.
    pub(super) fn is_of_something(&self) -> bool {
        self.is_turn || self.spend > 0 || self.tokens != StoredUsage::default()
    }
}

impl CostReader {
    /// Adds what an entry records. An entry that cannot be read has no cost that could be told:
    /// `audit` names it.
    pub(super) fn read_entry(&mut self, body: &str) {
        let Ok(entry) = serde_json::from_str::<StoredEntry<'_>>(body) else {
            return;
        };
        let seconds = entry.time.seconds;
        let reply = entry.events.iter().find(|event| event.kind == "result");
        if let Some(settled) = entry.settled {
            self.costs.push(EntryCost {
                model: reply.and_then(|event| event.model.as_deref().map(str::to_owned)),
                is_turn: reply.is_some_and(|event| !event.summary),
                ..settled.into_cost(seconds)
            });
        }
        let charged = entry.charged.into_iter();
        self.costs
            .extend(charged.map(|charged| charged.into_cost(seconds)));
        for event in entry.events {
            match &*event.kind {
                "tool_result" | "consent_asked" if event.cost > 0 => self.costs.push(EntryCost {
                    seconds,
                    spend: event.cost,
                    ..EntryCost::default()
                }),
                "usage_corrected" => self.correct(&event),
                _ => {}
            }
        }
    }

    /// Puts the real cost of an attempt in the place of what it was charged.
    fn correct(&mut self, told: &StoredEvent<'_>) {
        let charged = self.costs.iter_mut().rev();
        let mut charged = charged.filter(|cost| cost.attempt == told.version);
        if let Some(cost) = charged.next() {
            cost.spend = told.spend;
            let tokens = told.usage.unwrap_or_default();
            // A correction that reports only money keeps the estimated tokens.
            if tokens != StoredUsage::default() {
                cost.tokens = tokens;
            }
        }
    }

    /// Returns the costs, in the order of their entries.
    pub(super) fn into_costs(self) -> Vec<EntryCost> {
        self.costs
    }
}

impl StoredSettlement {
    fn into_cost(self, seconds: i64) -> EntryCost {
        EntryCost {
            seconds,
            model: None,
            spend: self.spend,
            tokens: self.usage.unwrap_or_default(),
            is_turn: false,
            attempt: self.version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(entries: &[Value]) -> Vec<EntryCost> {
        let mut reader = CostReader::default();
        for entry in entries {
            reader.read_entry(&entry.to_string());
        }
        reader.into_costs()
    }

    fn entry(seconds: i64, fields: Value) -> Value {
        let mut entry = json!({"format": 1, "time": {"seconds": seconds, "nanos": 5}});
        let fields = fields.as_object().unwrap().clone();
        entry.as_object_mut().unwrap().extend(fields);
        entry
    }

    #[test]
    fn every_kind_of_cost_counts_once() {
        let usage = json!({"input": 3, "output": 2, "read": 1, "write": 0, "reasoning": 0});
        let costs = read(&[
            entry(
                10,
                json!({
                    "settled": {"version": 1, "spend": 7, "how": "settled", "usage": usage},
                    "events": [
                        {"type": "assistant_text", "text": "caf\u{e9} \"x\""},
                        {"type": "result", "model": "tiny", "usage": usage, "spend": 7},
                    ],
                }),
            ),
            entry(
                20,
                json!({"events": [
                    {"type": "tool_result", "version": 2, "index": 0, "cost": 4, "text": "a\nb"},
                    {"type": "tool_result", "version": 2, "index": 1, "cost": 0},
                    {"type": "consent_asked", "cost": 1},
                ]}),
            ),
            entry(
                30,
                json!({
                    "charged": [{"version": 5, "hold": 9, "spend": 9, "how": "charged"}],
                    "events": [{"type": "charged", "version": 5, "spend": 9, "most": 9}],
                }),
            ),
            entry(
                40,
                json!({
                    "settled": {"version": 8, "spend": 6, "how": "settled", "usage": usage},
                    "events": [{"type": "result", "model": "tiny", "summary": true, "spend": 6}],
                }),
            ),
        ]);
        let told: Vec<_> = costs
            .iter()
            .map(|cost| {
                (
                    cost.seconds,
                    cost.model.as_deref(),
                    cost.spend,
                    cost.is_turn,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (10, Some("tiny"), 7, true),
                (20, None, 4, false),
                (20, None, 1, false),
                (30, None, 9, false),
                (40, Some("tiny"), 6, false),
            ]
        );
        assert_eq!((costs[0].tokens.input, costs[0].tokens.read), (3, 1));
    }

    #[test]
    fn a_correction_replaces_its_charge_at_the_time_of_the_charge() {
        let estimated = json!({"input": 9, "output": 9});
        let charged = entry(
            10,
            json!({
                "settled": {"version": 3, "spend": 100, "how": "charged", "usage": estimated},
                "events": [{"type": "charged", "version": 3, "spend": 100, "most": 200}],
            }),
        );
        let corrected = |usage: Value| {
            entry(
                99,
                json!({"events": [
                    {"type": "usage_corrected", "version": 3, "spend": 40, "usage": usage},
                ]}),
            )
        };
        for (usage, input) in [
            (json!({"input": 2, "output": 1}), 2),
            (json!({"input": 0}), 9),
        ] {
            let costs = read(&[charged.clone(), corrected(usage)]);
            assert_eq!(costs.len(), 1);
            assert_eq!(
                (costs[0].seconds, costs[0].spend, costs[0].tokens.input),
                (10, 40, input)
            );
        }
        assert_eq!(read(&[corrected(json!({}))]), [], "a charge of nobody");
    }

    #[test]
    fn what_is_no_entry_costs_nothing() {
        let mut reader = CostReader::default();
        for body in ["", "null", "[]", "{}", r#"{"time": {"seconds": "x"}}"#] {
            reader.read_entry(body);
        }
        assert_eq!(reader.into_costs(), []);
    }
}
