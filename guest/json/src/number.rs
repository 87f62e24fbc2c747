//! Numbers that keep their digits.

use threadkeep_units::json_number;

/// A JSON number. It is written with the digits it was read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonNumber(NumberDigits);

#[derive(Debug, Clone, PartialEq, Eq)]
enum NumberDigits {
    /// A whole number that is not negative: nearly every number of a record.
    Whole(u64),
    /// Any other number, as text.
    Text(String),
}

impl JsonNumber {
    /// Parses a number; returns `None` if the text is no JSON number.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(whole) = parse_whole(text) {
            return Some(Self(NumberDigits::Whole(whole)));
        }
        json_number::normalize_number(text).map(Self::from_valid_text)
    }

    /// Makes a number of a text that is known to be one.
    pub(super) fn from_valid_text(text: String) -> Self {
        Self(NumberDigits::Text(text))
    }

    /// Returns the value, if it is whole and from 0 to 2^64 - 1.
    pub fn as_u64(&self) -> Option<u64> {
        match &self.0 {
            NumberDigits::Whole(whole) => Some(*whole),
            NumberDigits::Text(_) => None,
        }
    }

    /// Returns the value, if it is whole and from -2^63 to 2^63 - 1.
    pub fn as_i64(&self) -> Option<i64> {
        match &self.0 {
            NumberDigits::Whole(whole) => i64::try_from(*whole).ok(),
            NumberDigits::Text(text) => text.parse().ok(),
        }
    }

    /// Returns the digits, as they are written.
    pub fn to_digits(&self) -> String {
        let mut digits = String::new();
        self.write(&mut digits);
        digits
    }

    /// Appends the digits.
    pub(super) fn write(&self, out: &mut String) {
        match &self.0 {
            NumberDigits::Whole(whole) => write_u64(out, *whole),
            NumberDigits::Text(text) => out.push_str(text),
        }
    }
}

impl From<u64> for JsonNumber {
    fn from(whole: u64) -> Self {
        Self(NumberDigits::Whole(whole))
    }
}

impl From<i64> for JsonNumber {
    fn from(whole: i64) -> Self {
        match u64::try_from(whole) {
            Ok(whole) => Self(NumberDigits::Whole(whole)),
            Err(_) => Self(NumberDigits::Text(whole.to_string())),
        }
    }
}

/// Returns the value of a whole number from 0 to 2^64 - 1 that is written as JSON writes it: nearly
/// every number of a record.
fn parse_whole(text: &str) -> Option<u64> {
    let leading_zero = text.len() > 1 && text.starts_with('0');
    let plain = !leading_zero && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Appends a whole number in decimal.
pub(super) fn write_u64(out: &mut String, mut whole: u64) {
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
    let Ok(digits) = str::from_utf8(&digits[first..]) else {
        unreachable!("digits are ASCII");
    };
    out.push_str(digits);
}
