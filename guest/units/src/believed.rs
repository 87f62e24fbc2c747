//! The usage that is believed: a report of tokens is cut to what its call can have used. A report
//! of 10^18 tokens would lock the account of a thread, and a shared book, for ever.

use crate::price::Usage;

/// Factor up to which reported tokens are believed, relative to those that the call was admitted
/// with: providers count in their own way, and some let a model think beyond the output maximum.
pub const BELIEVED_FACTOR: u64 = 2;

/// Tokens believed in addition to the factor: prompts that providers prepend have a few thousand at
/// most.
pub const BELIEVED_TOKENS: u64 = 10_000;

/// Returns the most tokens that are believed of a call that was admitted with so many.
pub fn believed_tokens(admitted: u64) -> u64 {
    let times = admitted.saturating_mul(BELIEVED_FACTOR);
    times.saturating_add(BELIEVED_TOKENS)
}

impl Usage {
    /// Cuts the usage to what is believed of a call that was admitted with `input` tokens to read,
    /// of whatever kind, and `output` tokens to write.
    #[must_use]
    pub fn cut_to_admitted(self, input: u64, output: u64) -> Self {
        let mut readable = believed_tokens(input);
        let mut of_readable = |tokens: u64| {
            let kept = tokens.min(readable);
            readable -= kept;
            kept
        };
        let output = self.output.min(believed_tokens(output));
        Self {
            input: of_readable(self.input),
            read: of_readable(self.read),
            write: of_readable(self.write),
            output,
            reasoning: self.reasoning.min(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_cut_to_what_was_admitted() {
        let usage = |input, output, read, write, reasoning| Usage {
            input,
            output,
            read,
            write,
            reasoning,
        };
        let most = u64::MAX;
        for (told, believed) in [
            (usage(100, 50, 20, 10, 5), usage(100, 50, 20, 10, 5)),
            (usage(12_000, 0, 0, 0, 0), usage(12_000, 0, 0, 0, 0)),
            (usage(12_001, 0, 0, 0, 0), usage(12_000, 0, 0, 0, 0)),
            (usage(11_000, 0, 900, 200, 0), usage(11_000, 0, 900, 100, 0)),
            (
                usage(0, 10_101, 0, 0, 10_101),
                usage(0, 10_100, 0, 0, 10_100),
            ),
            (
                usage(most, most, most, most, most),
                usage(12_000, 10_100, 0, 0, 10_100),
            ),
        ] {
            assert_eq!(told.cut_to_admitted(1_000, 50), believed, "{told:?}");
        }
        assert_eq!(
            usage(most, most, 0, 0, 0).cut_to_admitted(most, most),
            usage(most, most, 0, 0, 0)
        );
    }
}
