//! Money: an integer of nano-USD with checked arithmetic and canonical decimal text.
//!
//! Input finer than a nano is refused, prices round up. The floats of older documents do not exist here.

use crate::error::Error;
use crate::json::{FromJson, ToJson, Value, Wrong};
use std::fmt;

/// 10^-9 US dollars. The largest amount is about 18 billion dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Nanos(u64);

/// Why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Empty, signed, in exponent form, NaN, or with anything but digits and one point.
    #[error("is not a plain decimal such as 0.25")]
    NotDecimal,
    /// More than nine decimals that are not zero.
    #[error("is finer than a billionth of a dollar")]
    TooFine,
    /// More than 18,446,744,073.709551615.
    #[error("is larger than any amount")]
    TooLarge,
}

impl Nanos {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// More than this there is not.
    pub const MAX: Self = Self(u64::MAX);

    /// The most that one call may be held for or cost: a million dollars. What is told from outside is bounded by it where
    /// it is read, and nothing is set aside above [`crate::ledger::TAKEN_MAX`], so 9,223 such bills fit on top before the
    /// sums of an account could be wrong.
    pub const BILL_MAX: Self = Self(1_000_000_000_000_000);

    /// So many nano-USD.
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// As an integer of nano-USD.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sum, unless it is larger than any amount.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The difference, unless it is below zero.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// The sum, at most the largest amount: for totals that are shown.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero: for what is left.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// What one call costs, as it is told from outside.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than [`Nanos::BILL_MAX`]; `field` says where.
    pub fn bill(field: &str, nanos: u64) -> Result<Self, Error> {
        let bill = Self(nanos);
        if bill <= Self::BILL_MAX {
            return Ok(bill);
        }
        let problem = format!("is more than {} USD, the most of one call", Self::BILL_MAX);
        Err(Error::invalid(field, &bill.to_string(), problem))
    }

    /// The amount that a decimal text such as `0.25` stands for, exactly.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(AmountError::NotDecimal);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 9 {
            return Err(AmountError::TooFine);
        }
        let nanos: u64 = format!("{fraction:0<9}")
            .parse()
            .map_err(|_| AmountError::NotDecimal)?;
        let whole: u64 = whole.parse().map_err(|_| AmountError::TooLarge)?;
        whole
            .checked_mul(1_000_000_000)
            .and_then(|whole| whole.checked_add(nanos))
            .map(Self)
            .ok_or(AmountError::TooLarge)
    }
}

impl ToJson for Nanos {
    fn write(&self, out: &mut String) {
        self.0.write(out);
    }
}

impl FromJson for Nanos {
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        u64::read(value).map(Self)
    }

    fn hollow() -> Self {
        Self::ZERO
    }
}

impl fmt::Display for Nanos {
    /// Canonical decimal text: no trailing zeros beyond two decimals, at least two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:09}", self.0 % 1_000_000_000);
        let kept = fraction.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / 1_000_000_000, &fraction[..kept])
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
            ("1.2.3", Err(NotDecimal)),
            ("١", Err(NotDecimal)),
        ] {
            assert_eq!(Nanos::parse(text).map(Nanos::get), expected, "{text:?}");
        }
    }

    #[test]
    fn one_bill_is_bounded() {
        let most = Nanos::BILL_MAX.get();
        for (nanos, fits) in [
            (0, true),
            (most, true),
            (most + 1, false),
            (u64::MAX, false),
        ] {
            assert_eq!(Nanos::bill("cost", nanos).is_ok(), fits, "{nanos}");
        }
        let error = Nanos::bill("cost", most + 1).unwrap_err().to_string();
        assert!(error.contains("1000000.00 USD"), "{error}");
    }

    #[test]
    fn prints_what_it_parses() {
        for text in [
            "0.00",
            "0.10",
            "0.000000001",
            "12.345",
            "18446744073.709551615",
        ] {
            assert_eq!(Nanos::parse(text).unwrap().to_string(), text);
        }
    }
}
