//! The sums of what one thread has used, by day and model: as much of the costs of a history as
//! `usage` needs, and so what a cache keeps of it.

use super::entry_costs::EntryCost;
use crate::answer::UsageRow;
use serde::Deserialize;
use std::collections::BTreeMap;
use threadkeep_units::time::rfc3339_seconds;

/// Seconds of a day in UTC.
const DAY_SECONDS: i64 = 86_400;

/// Characters of a time of RFC 3339 that are its day.
const DAY_CHARS: usize = "2026-03-10".len();

/// The costs of a thread on one day with one model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct DaySum {
    /// The model that replied; none without a whole reply, and for tools.
    pub(super) model: Option<String>,
    /// The times of the earliest and the latest cost, in seconds since 1970: of one day.
    pub(super) first: i64,
    pub(super) last: i64,
    /// Completed model calls that are turns.
    pub(super) turns: u64,
    /// Tokens that the model read, from caches too.
    pub(super) input: u64,
    /// Tokens that the model wrote.
    pub(super) output: u64,
    /// Nano-USD.
    pub(super) spend: u64,
}

impl DaySum {
    fn new(cost: &EntryCost) -> Self {
        Self {
            model: cost.model.clone(),
            first: cost.seconds,
            last: cost.seconds,
            turns: 0,
            input: 0,
            output: 0,
            spend: 0,
        }
    }

    fn add_cost(&mut self, cost: &EntryCost) {
        let tokens = &cost.tokens;
        let input = tokens.input.saturating_add(tokens.read);
        let input = input.saturating_add(tokens.write);
        self.first = self.first.min(cost.seconds);
        self.last = self.last.max(cost.seconds);
        self.turns = self.turns.saturating_add(u64::from(cost.is_turn));
        self.input = self.input.saturating_add(input);
        self.output = self.output.saturating_add(tokens.output);
        self.spend = self.spend.saturating_add(cost.spend);
    }
}

impl UsageRow {
    /// Adds what one thread has used.
    pub(super) fn add_sum(&mut self, sum: &DaySum) {
        self.turns = self.turns.saturating_add(sum.turns);
        self.input_tokens = self.input_tokens.saturating_add(sum.input);
        self.output_tokens = self.output_tokens.saturating_add(sum.output);
        self.spend = self.spend.saturating_add(sum.spend);
    }
}

/// Adds up the costs of a thread since a time, by day and model.
pub(super) fn sum_costs(costs: &[EntryCost], since: i64) -> Vec<DaySum> {
    let mut sums = BTreeMap::new();
    let counts = |cost: &&EntryCost| cost.seconds >= since && cost.is_of_something();
    for cost in costs.iter().filter(counts) {
        let key = (day_of(cost.seconds), &cost.model);
        let sum = sums.entry(key).or_insert_with(|| DaySum::new(cost));
        sum.add_cost(cost);
    }
    sums.into_values().collect()
}

/// Returns those of the sums of all costs that are the sums since a time; `None` if one of them has
/// costs from before and after, which only its entries tell apart.
pub(super) fn select_since(sums: &[DaySum], since: i64) -> Option<Vec<&DaySum>> {
    let is_split = |sum: &DaySum| sum.first < since && since <= sum.last;
    let later = sums.iter().filter(|sum| sum.first >= since);
    (!sums.iter().any(is_split)).then(|| later.collect())
}

/// The names of days; most times that are asked for one after the other are of one day.
#[derive(Debug, Default)]
pub(super) struct DayNames {
    last: Option<(i64, String)>,
}

impl DayNames {
    /// Returns the day of a time in UTC.
    pub(super) fn name_day(&mut self, seconds: i64) -> String {
        let number = seconds.div_euclid(DAY_SECONDS);
        match &self.last {
            Some((known, day)) if *known == number => day.clone(),
            _ => {
                let day = day_of(seconds);
                self.last = Some((number, day.clone()));
                day
            }
        }
    }
}

fn day_of(seconds: i64) -> String {
    let mut day = rfc3339_seconds(seconds);
    day.truncate(DAY_CHARS);
    day
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::usage::entry_costs::StoredUsage;

    /// Numbers that look random, the same in each run.
    struct NumberSource(u64);

    impl NumberSource {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) % end
        }
    }

    fn random_costs(numbers: &mut NumberSource) -> Vec<EntryCost> {
        let models = [None, Some("tiny"), Some("boss")];
        let count = numbers.below(12);
        let cost = |_| EntryCost {
            seconds: numbers.below(4 * DAY_SECONDS as u64) as i64 - DAY_SECONDS,
            model: models[numbers.below(3) as usize].map(str::to_owned),
            spend: [numbers.below(1_000), u64::MAX][usize::from(numbers.below(50) == 0)],
            tokens: StoredUsage {
                input: numbers.below(9),
                output: numbers.below(9),
                read: numbers.below(9),
                write: numbers.below(9),
                reasoning: numbers.below(9),
            },
            is_turn: numbers.below(2) == 0,
            ..EntryCost::default()
        };
        (0..count).map(cost).collect()
    }

    /// The sums that a cache keeps give what the costs themselves give, whatever time is asked for.
    #[test]
    fn sums_since_a_time_are_those_of_its_costs() {
        let (mut numbers, mut days) = (NumberSource(7), DayNames::default());
        let (mut split, mut selected) = (0, 0);
        for _ in 0..5_000 {
            let costs = random_costs(&mut numbers);
            let all = sum_costs(&costs, i64::MIN);
            // Often the time of a cost itself, or one beside it.
            let since = match costs.get(numbers.below(24) as usize) {
                Some(cost) => cost.seconds + numbers.below(3) as i64 - 1,
                None => numbers.below(5 * DAY_SECONDS as u64) as i64 - DAY_SECONDS,
            };
            let expected = sum_costs(&costs, since);
            match select_since(&all, since) {
                Some(found) => {
                    selected += 1;
                    assert_eq!(
                        found,
                        expected.iter().collect::<Vec<_>>(),
                        "{costs:?} {since}"
                    );
                }
                None => {
                    split += 1;
                    assert_ne!(expected, all, "{costs:?} {since}");
                }
            }
            let mut row = UsageRow::default();
            all.iter().for_each(|sum| row.add_sum(sum));
            let spend = costs
                .iter()
                .fold(0_u64, |sum, cost| sum.saturating_add(cost.spend));
            assert_eq!(row.spend, spend);
            for sum in &all {
                assert_eq!(days.name_day(sum.first), day_of(sum.last));
            }
        }
        assert!(split > 500 && selected > 500, "{split} {selected}");
    }
}
