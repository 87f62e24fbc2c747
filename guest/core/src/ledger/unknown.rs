//! The charge for an attempt whose usage is never reported: its connection broke, or its holder
//! died.

use super::Usage;
use crate::error::Error;
use crate::json::record::record;
use crate::time::Instant;

/// Output tokens per second assumed for a model whose entry names no rate: no common model is
/// faster.
pub const TOKENS_PER_SECOND: u64 = 200;

/// Operator's choice of the charge for such an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownBill {
    /// An estimate of the tokens it can have used in the time that it was under way.
    #[default]
    Estimate,
    /// All of its hold.
    Full,
}

impl UnknownBill {
    /// Reads the word of a policy.
    ///
    /// # Errors
    /// The word is neither `estimate` nor `full`.
    pub fn parse(word: &str) -> Result<Self, Error> {
        match word {
            "estimate" => Ok(Self::Estimate),
            "full" => Ok(Self::Full),
            _ => {
                let words = ["estimate", "full"];
                let problem = "is not how an unknown bill is charged: estimate or full";
                Err(Error::unknown("policy.unknown_bill", word, problem, &words))
            }
        }
    }
}

/// Numbers from which such a charge is estimated, fixed when the attempt is admitted. An attempt
/// without one is charged its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChargeBasis {
    /// Tokens of the request, as estimated for the hold.
    pub input: u64,
    /// Most output tokens that were admitted.
    pub output: u64,
    /// Output tokens per second that the model can write.
    pub rate: u64,
    /// Time at which the attempt was admitted.
    pub since: Instant,
}

record!(ChargeBasis {
    input,
    output,
    rate,
    since
});

impl ChargeBasis {
    /// Estimates the tokens of an attempt that was under way until `end` and of whose reply
    /// `arrived` tokens were seen: all of its input, and as output the larger of what arrived and
    /// what the time allowed, but no more than was admitted.
    pub fn usage(&self, arrived: u64, end: Instant) -> Usage {
        let millis = end.millis_since(self.since);
        let written = self.rate.saturating_mul(millis).div_ceil(1_000);
        Usage {
            input: self.input,
            output: written.max(arrived).min(self.output),
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_text_count_and_never_more_than_was_admitted() {
        let since = Instant::from_millis(1_000);
        let basis = ChargeBasis {
            input: 50,
            output: 1_000,
            rate: 200,
            since,
        };
        for (arrived, millis, output) in [
            (0, 0, 0),
            (0, 1, 1),
            (3, 10, 3),
            (3, 1_500, 300),
            (2_000, 10, 1_000),
            (0, 3_600_000, 1_000),
        ] {
            let usage = basis.usage(arrived, since.plus_millis(millis));
            assert_eq!(
                (usage.input, usage.output),
                (50, output),
                "{arrived} {millis}"
            );
        }
        // A clock that stepped back counts as no time.
        assert_eq!(basis.usage(7, Instant::from_millis(0)).output, 7);
    }
}
