//! Numbers that keep their digits.

/// A JSON number. It is written with the digits it was read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Number(Digits);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Digits {
    /// A whole number that is not negative: nearly every number of a record.
    Whole(u64),
    /// Any other number, as text.
    Text(String),
}

impl Number {
    /// Parses a number; returns `None` if the text is no JSON number.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.parse::<serde_json::Number>().ok()?.to_string();
        Some(match number.parse() {
            Ok(whole) => Self(Digits::Whole(whole)),
            Err(_) => Self::checked(number),
        })
    }

    /// Makes a number of a text that is known to be one.
    pub(super) fn checked(text: String) -> Self {
        Self(Digits::Text(text))
    }

    /// Returns the value, if it is whole and from 0 to 2^64 - 1.
    pub fn whole(&self) -> Option<u64> {
        match &self.0 {
            Digits::Whole(whole) => Some(*whole),
            Digits::Text(_) => None,
        }
    }

    /// Returns the value, if it is whole and from -2^63 to 2^63 - 1.
    pub fn signed(&self) -> Option<i64> {
        match &self.0 {
            Digits::Whole(whole) => i64::try_from(*whole).ok(),
            Digits::Text(text) => text.parse().ok(),
        }
    }

    /// Appends the digits.
    pub(super) fn write(&self, out: &mut String) {
        match &self.0 {
            Digits::Whole(whole) => write_whole(out, *whole),
            Digits::Text(text) => out.push_str(text),
        }
    }
}

impl From<u64> for Number {
    fn from(whole: u64) -> Self {
        Self(Digits::Whole(whole))
    }
}

/// Appends a whole number in decimal.
pub(super) fn write_whole(out: &mut String, mut whole: u64) {
    // 2^64 - 1 has twenty digits.
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (whole % 10) as u8;
        whole /= 10;
        if whole == 0 {
            break;
        }
    }
    out.extend(digits[first..].iter().copied().map(char::from));
}
