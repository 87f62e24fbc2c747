//! Tokens by kind, and their cost. Prices are nano-USD per million tokens; a cost rounds up, once.

use crate::json::record::record;
use crate::money::Nanos;

/// Tokens of one response, or a sum. `input` does not include `read` and `write`; `output` includes
/// `reasoning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Input tokens neither read from nor written to a cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from a cache.
    pub read: u64,
    /// Input tokens written to a cache.
    pub write: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
}

record!(Usage {
    input,
    output,
    read,
    write,
    reasoning
});

impl Usage {
    /// Every token that was billed.
    pub fn total(self) -> u64 {
        self.context().saturating_add(self.output)
    }

    /// Every token that the model read.
    pub fn context(self) -> u64 {
        self.input
            .saturating_add(self.read)
            .saturating_add(self.write)
    }

    /// The difference by kind, not below zero.
    pub fn minus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            read: self.read.saturating_sub(other.read),
            write: self.write.saturating_sub(other.write),
            reasoning: self.reasoning.saturating_sub(other.reasoning),
        }
    }

    /// The sum by kind.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            read: self.read.saturating_add(other.read),
            write: self.write.saturating_add(other.write),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

/// Prices in nano-USD per million tokens, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    /// Price of input tokens.
    pub input: Nanos,
    /// Price of output tokens, reasoning included.
    pub output: Nanos,
    /// Price of input tokens read from a cache.
    pub read: Nanos,
    /// Price of input tokens written to a cache.
    pub write: Nanos,
}

record!(Prices {
    input,
    output,
    read,
    write
});

impl Prices {
    /// Returns the cost of `usage`, rounded up to a nano. It is at most [`Nanos::BILL_MAX`]: a
    /// provider's numbers never make a bill vanish, and never make the sums of an account wrong.
    pub fn cost(&self, usage: Usage) -> Nanos {
        let part = |tokens: u64, price: Nanos| u128::from(tokens) * u128::from(price.get());
        let sum = part(usage.input, self.input)
            .saturating_add(part(usage.output, self.output))
            .saturating_add(part(usage.read, self.read))
            .saturating_add(part(usage.write, self.write));
        let nanos = u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Nanos::new(nanos).min(Nanos::BILL_MAX)
    }

    /// Returns the highest cost of a call that reads `input` tokens, of whatever kind, and writes
    /// `output`.
    pub fn ceiling(&self, input: u64, output: u64) -> Nanos {
        let dearest = Self {
            input: self.input.max(self.write).max(self.read),
            ..*self
        };
        dearest.cost(Usage {
            input,
            output,
            ..Usage::default()
        })
    }

    /// Returns the most output tokens that `money` pays for beside `input` input tokens; `u64::MAX`
    /// if output is free.
    pub fn output_for(&self, money: Nanos, input: u64) -> u64 {
        let left = u128::from(money.saturating_sub(self.ceiling(input, 0)).get()) * 1_000_000;
        match u128::from(self.output.get()) {
            0 => u64::MAX,
            price => u64::try_from(left / price).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        input: Nanos::new(150_000_000),
        output: Nanos::new(600_000_000),
        read: Nanos::new(75_000_000),
        write: Nanos::new(187_500_000),
    };

    #[test]
    fn costs_round_up_once() {
        let usage = |input, output, read| Usage {
            input,
            output,
            read,
            ..Usage::default()
        };
        for (usage, expected) in [
            (usage(0, 0, 0), 0),
            (usage(1, 0, 0), 150),
            (usage(1_000_000, 1_000_000, 1_000_000), 825_000_000),
            (usage(u64::MAX, u64::MAX, 0), Nanos::BILL_MAX.get()),
        ] {
            assert_eq!(PRICES.cost(usage).get(), expected);
        }
        let odd = Prices {
            input: Nanos::new(1),
            ..Prices::default()
        };
        assert_eq!(odd.cost(usage(1, 0, 0)).get(), 1);
        assert_eq!(odd.cost(usage(1_000_001, 0, 0)).get(), 2);
    }

    #[test]
    fn output_for_fits_the_ceiling() {
        for (money, input) in [(1_000_000, 1_000), (187_500, 1_000), (10, 1_000), (600, 0)] {
            let output = PRICES.output_for(Nanos::new(money), input);
            assert!(
                output == 0 || PRICES.ceiling(input, output).get() <= money + 1,
                "{money} {input} {output}"
            );
        }
        assert_eq!(Prices::default().output_for(Nanos::ZERO, 9), u64::MAX);
    }
}
