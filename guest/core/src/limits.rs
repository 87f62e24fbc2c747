//! Caps: upper bounds that are checked before a cost arises. `None` is unlimited; zero allows
//! nothing.

use crate::error::Error;
use crate::json::record;
use crate::money::NanoUsd;

/// The largest cap: 2^63 - 1. Other readers of caps (SQL views, JSON readers, other languages)
/// count in signed numbers of 64 bits. A larger number is a mistake: the way to set no cap is to
/// name none.
pub const CAP_MAX: u64 = i64::MAX as u64;

/// The largest cap that counts turns, spawns or levels: 2^31 - 1. The contract counts them in 32
/// bits, and bindings turn -1 into the largest such number.
pub const COUNT_CAP_MAX: u64 = i32::MAX as u64;

/// Refuses a number of tokens above [`CAP_MAX`]; `field` is its path in the error.
///
/// # Errors
/// `ErrorKind::Invalid`.
pub fn check_tokens(field: &str, tokens: u64) -> Result<(), Error> {
    if tokens <= CAP_MAX {
        return Ok(());
    }
    let problem = format!("are above {CAP_MAX}, the most that can be told");
    Err(Error::invalid(field, &tokens.to_string(), problem))
}

/// Six caps. Turns, tokens and duration count for a run; spend, spawns and depth for a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadCaps {
    /// Most model calls.
    pub turns: Option<u64>,
    /// Most tokens, of every kind together.
    pub tokens: Option<u64>,
    /// Most money, in nano-USD.
    pub spend: Option<NanoUsd>,
    /// Most child threads.
    pub spawns: Option<u64>,
    /// Most levels of children.
    pub depth: Option<u64>,
    /// Most milliseconds inside steps.
    pub duration: Option<u64>,
}

record!(ThreadCaps {
    turns,
    tokens,
    spend,
    spawns,
    depth,
    duration
});

impl ThreadCaps {
    /// No caps at all.
    pub const NONE: Self = Self {
        turns: None,
        tokens: None,
        spend: None,
        spawns: None,
        depth: None,
        duration: None,
    };

    /// The defaults for a person's own machine.
    pub const LOCAL: Self = Self {
        turns: Some(25),
        tokens: Some(1_000_000),
        spend: Some(NanoUsd::new(1_000_000_000)),
        spawns: Some(50),
        depth: Some(10),
        duration: Some(1_800_000),
    };

    /// The defaults for untrusted tenants.
    pub const STRICT: Self = Self {
        turns: Some(10),
        tokens: Some(200_000),
        spend: Some(NanoUsd::new(100_000_000)),
        spawns: Some(5),
        depth: Some(3),
        duration: Some(300_000),
    };

    /// Returns the preset of this name.
    pub fn for_preset(name: &str) -> Option<Self> {
        match name {
            "local" => Some(Self::LOCAL),
            "strict" => Some(Self::STRICT),
            _ => None,
        }
    }

    /// Returns these caps, replaced by those of `other` where it sets one.
    pub fn overridden_by(self, other: Self) -> Self {
        Self {
            turns: other.turns.or(self.turns),
            tokens: other.tokens.or(self.tokens),
            spend: other.spend.or(self.spend),
            spawns: other.spawns.or(self.spawns),
            depth: other.depth.or(self.depth),
            duration: other.duration.or(self.duration),
        }
    }

    /// Returns the first cap that is above the same cap of `most`: its name and both values.
    pub fn first_cap_above(self, most: Self) -> Option<(&'static str, String, String)> {
        let count = |value: Option<u64>| value.map(|value| (value, value.to_string()));
        let money =
            |value: Option<NanoUsd>| value.map(|value| (value.get(), format!("{value} USD")));
        let time = |value: Option<u64>| value.map(|value| (value, format!("{value} ms")));
        let caps = [
            ("turns", count(self.turns), count(most.turns)),
            ("tokens", count(self.tokens), count(most.tokens)),
            ("spend", money(self.spend), money(most.spend)),
            ("spawns", count(self.spawns), count(most.spawns)),
            ("depth", count(self.depth), count(most.depth)),
            ("duration", time(self.duration), time(most.duration)),
        ];
        caps.into_iter().find_map(|(name, asked, most)| {
            let (bound, shown) = most?;
            match asked {
                Some((value, _)) if value <= bound => None,
                Some((_, asked)) => Some((name, asked, shown)),
                None => Some((name, "unlimited".to_owned(), shown)),
            }
        })
    }

    /// Refuses caps above [`CAP_MAX`] or [`COUNT_CAP_MAX`]; `field` is the path of the caps in the
    /// error.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with the name of the first such cap.
    pub fn check(self, field: &str) -> Result<(), Error> {
        let caps = [
            ("turns", self.turns, COUNT_CAP_MAX),
            ("tokens", self.tokens, CAP_MAX),
            ("spend", self.spend.map(NanoUsd::get), CAP_MAX),
            ("spawns", self.spawns, COUNT_CAP_MAX),
            ("depth", self.depth, COUNT_CAP_MAX),
            ("duration", self.duration, CAP_MAX),
        ];
        let over = |(_, cap, most): &(&str, Option<u64>, u64)| cap.is_some_and(|cap| cap > *most);
        match caps.into_iter().find(over) {
            None => Ok(()),
            Some((name, cap, most)) => {
                let asked = cap.unwrap_or_default().to_string();
                let problem = format!("is above {most}, the largest cap: leave it out for none");
                Err(Error::invalid(format!("{field}.{name}"), &asked, problem))
            }
        }
    }

    /// Returns the lower of both values for each cap.
    pub fn lowered_to(self, other: Self) -> Self {
        fn lower<T: Ord>(left: Option<T>, right: Option<T>) -> Option<T> {
            match (left, right) {
                (Some(left), Some(right)) => Some(left.min(right)),
                (left, right) => left.or(right),
            }
        }
        Self {
            turns: lower(self.turns, other.turns),
            tokens: lower(self.tokens, other.tokens),
            spend: lower(self.spend, other.spend),
            spawns: lower(self.spawns, other.spawns),
            depth: lower(self.depth, other.depth),
            duration: lower(self.duration, other.duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_first_cap_that_is_above_another() {
        let (local, strict) = (ThreadCaps::LOCAL, ThreadCaps::STRICT);
        let text = |(name, asked, most): (&str, String, String)| format!("{name} {asked} {most}");
        let spend = |spend| ThreadCaps { spend, ..strict };
        for (asked, expected) in [
            (local, Some("turns 25 10")),
            (strict, None),
            (
                spend(Some(NanoUsd::new(100_000_001))),
                Some("spend 0.100000001 USD 0.10 USD"),
            ),
            (spend(None), Some("spend unlimited 0.10 USD")),
        ] {
            assert_eq!(asked.first_cap_above(strict).map(text).as_deref(), expected);
        }
        assert_eq!(ThreadCaps::NONE.first_cap_above(ThreadCaps::NONE), None);
    }

    #[test]
    fn overrides_and_lowers() {
        let asked = ThreadCaps {
            turns: Some(99),
            spend: Some(NanoUsd::new(5)),
            ..ThreadCaps::NONE
        };
        let merged = ThreadCaps::LOCAL
            .overridden_by(asked)
            .lowered_to(ThreadCaps::STRICT);
        assert_eq!(
            (merged.turns, merged.spend),
            (Some(10), Some(NanoUsd::new(5)))
        );
        assert_eq!(merged.tokens, Some(200_000));
        assert_eq!(
            ThreadCaps::NONE.lowered_to(ThreadCaps::NONE),
            ThreadCaps::NONE
        );
        assert_eq!(ThreadCaps::for_preset("lokal"), None);
    }
}
