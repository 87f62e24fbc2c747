//! Tokens by kind, and the cost of them by prices in nano-USD per million tokens. A cost rounds up,
//! once.

use crate::money::NanoUsd;

/// Tokens of one response, or a sum of them. `input` does not include `read` and `write`; `output`
/// includes `reasoning`.
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

impl Usage {
    /// Returns every token that was billed.
    pub fn total(self) -> u64 {
        self.context().saturating_add(self.output)
    }

    /// Returns every token that the model read.
    pub fn context(self) -> u64 {
        self.input
            .saturating_add(self.read)
            .saturating_add(self.write)
    }

    /// Returns the tokens of the call that the next request has again. Reasoning that the reply
    /// does not show is in no later request.
    pub fn kept_tokens(self, shows_reasoning: bool) -> u64 {
        let hidden = if shows_reasoning { 0 } else { self.reasoning };
        self.context()
            .saturating_add(self.output.saturating_sub(hidden))
    }

    /// Returns the difference by kind, not below zero.
    pub fn minus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            read: self.read.saturating_sub(other.read),
            write: self.write.saturating_sub(other.write),
            reasoning: self.reasoning.saturating_sub(other.reasoning),
        }
    }

    /// Returns the sum by kind.
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

/// Nano-USD per million tokens, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenPrices {
    /// Of input tokens.
    pub input: NanoUsd,
    /// Of output tokens, reasoning included.
    pub output: NanoUsd,
    /// Of input tokens read from a cache.
    pub read: NanoUsd,
    /// Of input tokens written to a cache.
    pub write: NanoUsd,
}

impl TokenPrices {
    /// Returns the cost of `usage`, rounded up to a nano-USD and at most [`NanoUsd::BILL_MAX`]: no
    /// number of a provider makes a bill vanish, or the sums of an account wrong.
    pub fn cost(&self, usage: Usage) -> NanoUsd {
        let part = |tokens: u64, price: NanoUsd| u128::from(tokens) * u128::from(price.get());
        let sum = part(usage.input, self.input)
            .saturating_add(part(usage.output, self.output))
            .saturating_add(part(usage.read, self.read))
            .saturating_add(part(usage.write, self.write));
        let nanos = u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        NanoUsd::new(nanos).min(NanoUsd::BILL_MAX)
    }

    /// Returns the most that a call can cost which reads `input` tokens, whatever their kind, and
    /// writes `output` tokens.
    pub fn max_cost(&self, input: u64, output: u64) -> NanoUsd {
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

    /// Returns the most input tokens that `money` pays for beside `output` output tokens, at the
    /// dearest price of input; `u64::MAX` if input is free.
    pub fn affordable_input(&self, money: NanoUsd, output: u64) -> u64 {
        let left = u128::from(money.saturating_sub(self.max_cost(0, output)).get()) * 1_000_000;
        match u128::from(self.max_cost(1_000_000, 0).get()) {
            0 => u64::MAX,
            price => u64::try_from(left / price).unwrap_or(u64::MAX),
        }
    }

    /// Returns the most output tokens that `money` pays for beside `input` input tokens; `u64::MAX`
    /// if output is free.
    pub fn affordable_output(&self, money: NanoUsd, input: u64) -> u64 {
        let left = u128::from(money.saturating_sub(self.max_cost(input, 0)).get()) * 1_000_000;
        match u128::from(self.output.get()) {
            0 => u64::MAX,
            price => u64::try_from(left / price).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: TokenPrices = TokenPrices {
        input: NanoUsd::new(150_000_000),
        output: NanoUsd::new(600_000_000),
        read: NanoUsd::new(75_000_000),
        write: NanoUsd::new(187_500_000),
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
            (usage(u64::MAX, u64::MAX, 0), NanoUsd::BILL_MAX.get()),
        ] {
            assert_eq!(PRICES.cost(usage).get(), expected);
        }
        let odd = TokenPrices {
            input: NanoUsd::new(1),
            ..TokenPrices::default()
        };
        assert_eq!(odd.cost(usage(1, 0, 0)).get(), 1);
        assert_eq!(odd.cost(usage(1_000_001, 0, 0)).get(), 2);
    }

    #[test]
    fn output_for_fits_the_ceiling() {
        for (money, input) in [(1_000_000, 1_000), (187_500, 1_000), (10, 1_000), (600, 0)] {
            let output = PRICES.affordable_output(NanoUsd::new(money), input);
            assert!(
                output == 0 || PRICES.max_cost(input, output).get() <= money + 1,
                "{money} {input} {output}"
            );
        }
        assert_eq!(
            TokenPrices::default().affordable_output(NanoUsd::ZERO, 9),
            u64::MAX
        );
    }
}
