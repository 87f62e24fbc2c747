//! Numbers of JSON as text: which texts are numbers, and which two have the same value.
//!
//! They are compared by their digits. A number of any length keeps them, so two that differ only
//! behind what a floating-point number holds are not equal.

/// Tells whether a text is a number as serde_json's parser gives it: in the grammar of JSON, an
/// exponent with `e` and a sign.
pub fn is_json_number(text: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = split_part(number, 'e');
    let (whole, fraction) = split_part(mantissa, '.');
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let signed = |exponent: &str| exponent.strip_prefix(['+', '-']).is_some_and(is_digits);
    is_digits(whole)
        && !leading_zero
        && fraction.is_none_or(is_digits)
        && exponent.is_none_or(signed)
}

/// Returns what is before the first `mark`, and what is after it, if it is there.
fn split_part(text: &str, mark: char) -> (&str, Option<&str>) {
    let parts = text.split_once(mark);
    parts.map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Tells whether two numbers have the same value; false if an exponent of one does not fit in 64
/// bits.
pub fn is_same_number(one: &str, other: &str) -> bool {
    match (DecimalValue::parse(one), DecimalValue::parse(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// The value of a number: its digits without zeros at either end, times a power of ten.
#[derive(PartialEq, Eq)]
struct DecimalValue {
    negative: bool,
    digits: String,
    power: i128,
}

impl DecimalValue {
    fn parse(number: &str) -> Option<Self> {
        let (negative, number) = match number.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, number),
        };
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        if digits.is_empty() {
            let zero = Self {
                negative: false,
                digits: String::new(),
                power: 0,
            };
            return Some(zero);
        }
        let shown = digits.trim_end_matches('0');
        let exponent: i64 = exponent.parse().ok()?;
        let zeros = (digits.len() - shown.len()) as i128;
        Some(Self {
            negative,
            digits: shown.to_owned(),
            power: i128::from(exponent) - fraction.len() as i128 + zeros,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_given_by_serde_json(text: &str) -> bool {
        let number = text.parse::<serde_json::Number>();
        number.is_ok_and(|number| number.to_string() == text)
    }

    #[test]
    fn numbers_are_those_of_the_grammar() {
        for text in [
            "0",
            "-0",
            "10",
            "0.10",
            "-1.5e+9",
            "1e-0",
            "18446744073709551616",
        ] {
            assert!(is_json_number(text), "{text}");
            assert!(is_given_by_serde_json(text), "{text}");
        }
        for text in [
            "", "-", "+1", "01", "1.", ".1", "1e5", "1E+5", "1e+", "1e+1.0", "1 ", "--1",
        ] {
            assert!(!is_json_number(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_what_serde_json_gives(text in "[-+.eE019]{0,9}") {
            prop_assert_eq!(is_json_number(&text), is_given_by_serde_json(&text));
        }
    }
}
