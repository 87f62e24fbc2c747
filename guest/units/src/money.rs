//! Money: an integer of nano-USD with checked arithmetic and canonical decimal text.
//!
//! Input finer than a nano-USD is refused; prices round up. No floating-point number is involved.

use std::{error, fmt};

/// Nano-USD in a US dollar.
pub const NANOS_PER_USD: u64 = 1_000_000_000;
/// Decimals of a nano-USD.
const DECIMALS: usize = 9;

/// An amount of 10^-9 US dollars. The largest amount is about 18 billion dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct NanoUsd(u64);

/// The reason why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmountError {
    /// The text is empty, signed, in exponent form, or has anything but digits and one point.
    NotDecimal,
    /// The text has more than nine decimals that are not zero.
    TooFine,
    /// The amount is more than 18,446,744,073.709551615.
    TooLarge,
}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDecimal => "is not a plain decimal such as 0.25",
            Self::TooFine => "is finer than a billionth of a dollar",
            Self::TooLarge => "is larger than any amount",
        })
    }
}

impl error::Error for AmountError {}

impl NanoUsd {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// The largest amount.
    pub const MAX: Self = Self(u64::MAX);

    /// The most that one call may be held for or cost: a million dollars. Amounts from outside are
    /// bounded by it where they are read, so that sums of an account never overflow.
    pub const BILL_MAX: Self = Self(1_000_000 * NANOS_PER_USD);

    /// The amount of this many nano-USD.
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the amount as an integer of nano-USD.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the sum, or `None` if it is larger than any amount.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Returns the difference, or `None` if it is below zero.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// Returns the sum, at most the largest amount: for totals that are shown.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least zero: for the rest of a budget.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Reads a decimal text such as `0.25` exactly.
    ///
    /// # Errors
    /// An [`AmountError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(AmountError::NotDecimal);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > DECIMALS {
            return Err(AmountError::TooFine);
        }
        let nanos: u64 = format!("{fraction:0<9}")
            .parse()
            .map_err(|_| AmountError::NotDecimal)?;
        let whole: u64 = whole.parse().map_err(|_| AmountError::TooLarge)?;
        whole
            .checked_mul(NANOS_PER_USD)
            .and_then(|whole| whole.checked_add(nanos))
            .map(Self)
            .ok_or(AmountError::TooLarge)
    }
}

impl fmt::Display for NanoUsd {
    /// Writes canonical decimal text: at least two decimals, and no zeros after those.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:09}", self.0 % NANOS_PER_USD);
        let kept = fraction.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / NANOS_PER_USD, &fraction[..kept])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_exactly_or_refuses() {
        use AmountError::*;
        for (text, expected) in [
            ("0", Ok(0)),
            ("3", Ok(3 * NANOS_PER_USD)),
            ("0.10", Ok(100_000_000)),
            ("1.000000001", Ok(1_000_000_001)),
            ("1.0000000010", Ok(1_000_000_001)),
            ("18446744073.709551615", Ok(u64::MAX)),
            ("18446744073.709551616", Err(TooLarge)),
            ("99999999999999999999999", Err(TooLarge)),
            ("0.0000000001", Err(TooFine)),
            ("", Err(NotDecimal)),
            (".5", Err(NotDecimal)),
            ("5.", Err(NotDecimal)),
            ("-1", Err(NotDecimal)),
            ("+1", Err(NotDecimal)),
            ("1e3", Err(NotDecimal)),
            ("NaN", Err(NotDecimal)),
            ("inf", Err(NotDecimal)),
            ("1,5", Err(NotDecimal)),
            ("1.2.3", Err(NotDecimal)),
            ("$1", Err(NotDecimal)),
            (" 1", Err(NotDecimal)),
            ("١", Err(NotDecimal)),
        ] {
            assert_eq!(NanoUsd::parse(text).map(NanoUsd::get), expected, "{text:?}");
        }
    }

    #[test]
    fn prints_what_it_parses() {
        for text in [
            "0.00",
            "0.10",
            "0.00021",
            "0.000000001",
            "12.345",
            "18446744073.709551615",
        ] {
            assert_eq!(NanoUsd::parse(text).unwrap().to_string(), text);
        }
    }
}
