//! The charge for an attempt whose usage is never reported: its connection broke, or its holder
//! died.
//!
//! The basis of the estimate is stored in the hold. So a recovery needs no pin, and a policy that
//! changes later changes no charge.

use super::Usage;
use crate::json::record;
use crate::time::UnixTime;
use threadkeep_units::unknown_bill::output_tokens_in;

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
    pub since: UnixTime,
}

record!(ChargeBasis {
    input,
    output,
    rate,
    since
});

impl ChargeBasis {
    /// Returns the basis with its tokens alone: of a charge that is estimated nothing else is
    /// needed, and each commit writes it.
    pub fn keep_tokens(self) -> Self {
        Self {
            rate: 0,
            since: UnixTime::default(),
            ..self
        }
    }

    /// Estimates the tokens of an attempt that was under way until `end` and of whose reply
    /// `arrived` tokens were seen: all of its input, and as output the larger of what arrived and
    /// what the time allowed, but no more than was admitted.
    pub fn estimated_usage(&self, arrived: u64, end: UnixTime) -> Usage {
        let millis = end.millis_since(self.since);
        let written = output_tokens_in(self.rate, millis);
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
        let since = UnixTime::from_millis(1_000);
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
            let usage = basis.estimated_usage(arrived, since.plus_millis(millis));
            assert_eq!(
                (usage.input, usage.output),
                (50, output),
                "{arrived} {millis}"
            );
        }
        // A clock that stepped back counts as no time.
        assert_eq!(basis.estimated_usage(7, UnixTime::from_millis(0)).output, 7);
    }
}
