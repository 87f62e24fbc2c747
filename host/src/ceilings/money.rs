//! Money by the operator's prices: checked integers of a nano-USD. No floating-point number is
//! involved.

use crate::library::models::Prices;
use crate::models::Usage;

/// Decimal places of a nano-USD in a dollar.
const DECIMALS: usize = 9;

/// Parses a plain decimal with at most nine places, such as `0.25`, as billionths; `None` for
/// anything else.
pub fn nanos(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let kept = fraction.trim_end_matches('0');
    if !digits(whole) || !digits(fraction) || kept.len() > DECIMALS {
        return None;
    }
    let nanos: u64 = format!("{kept:0<9}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// The operator's prices of a model: nano-USD per million tokens, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tariff {
    /// Of input tokens.
    pub input: u64,
    /// Of output tokens, reasoning included.
    pub output: u64,
    /// Of input tokens read from a cache.
    pub read: u64,
    /// Of input tokens written to a cache.
    pub write: u64,
}

impl Tariff {
    /// The tariff of a table's prices; a kind without its own price costs what input costs. `None`
    /// if a price is no decimal.
    pub fn of(prices: &Prices) -> Option<Self> {
        let input = nanos(&prices.input)?;
        let or_input = |price: &Option<String>| match price {
            Some(price) => nanos(price),
            None => Some(input),
        };
        Some(Self {
            input,
            output: nanos(&prices.output)?,
            read: or_input(&prices.read)?,
            write: or_input(&prices.write)?,
        })
    }

    /// The cost of a usage, rounded up once. It saturates at the largest amount, so that no cost is
    /// lost.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let sum = part(usage.input, self.input)
            .saturating_add(part(usage.output, self.output))
            .saturating_add(part(usage.read, self.read))
            .saturating_add(part(usage.write, self.write));
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// The most that a call can cost whose request has `request_bytes` bytes (a token is at least a
    /// byte) and whose reply has at most `output_tokens` tokens.
    pub fn worst(&self, request_bytes: u64, output_tokens: u64) -> u64 {
        let dearest = Self {
            input: self.input.max(self.read).max(self.write),
            ..*self
        };
        dearest.cost(&Usage {
            input: request_bytes,
            output: output_tokens,
            ..Usage::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0.25", Some(250_000_000)),
            ("5.000000001", Some(5_000_000_001)),
            ("1.0000000000", Some(1_000_000_000)),
            ("18446744073.709551615", Some(u64::MAX)),
            ("18446744073.709551616", None),
            ("0.0000000001", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("-1", None),
            ("1e3", None),
            ("١", None),
        ] {
            assert_eq!(nanos(text), expected, "{text:?}");
        }
    }

    #[test]
    fn costs_round_up_once_and_never_vanish() {
        let tariff = Tariff {
            input: 150_000_000,
            output: 600_000_000,
            read: 75_000_000,
            write: 187_500_000,
        };
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
            (usage(u64::MAX, u64::MAX, 0), u64::MAX),
        ] {
            assert_eq!(tariff.cost(&usage), expected);
        }
        assert_eq!(tariff.worst(1_000_000, 0), 187_500_000, "the dearest kind");
        assert_eq!(tariff.worst(u64::MAX, u64::MAX), u64::MAX);
        let odd = Tariff {
            input: 1,
            output: 0,
            read: 1,
            write: 1,
        };
        assert_eq!(odd.cost(&usage(1_000_001, 0, 0)), 2);
    }

    #[test]
    fn kinds_without_a_price_cost_what_input_costs() {
        let prices = Prices {
            input: "2".to_owned(),
            output: "4".to_owned(),
            read: None,
            write: Some("3".to_owned()),
        };
        let tariff = Tariff::of(&prices).expect("they are prices");
        let dollars = |nanos: u64| nanos / 1_000_000_000;
        assert_eq!((dollars(tariff.read), dollars(tariff.write)), (2, 3));
    }
}
