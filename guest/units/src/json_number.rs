//! Numbers of JSON as text: which texts are numbers, and which two have the same value.
//!
//! They are compared by their digits. A number of any length keeps them, so two that differ only
//! behind what a floating-point number holds are not equal.
//!
//! This stands here and not in `threadkeep-json`, which is compiled for speed: few numbers of a
//! record are not whole.

/// Returns a number as serde_json writes it, with `e` and a sign in an exponent; `None` if the text
/// is no number in the grammar of JSON. To ask serde_json would have its parser of numbers twice in
/// the component.
pub fn normalize_number(text: &str) -> Option<String> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = split_part(text, &['e', 'E']);
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = split_part(unsigned, &['.']);
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    if !is_digits(whole) || leading_zero || !fraction.is_none_or(is_digits) {
        return None;
    }
    let Some(exponent) = exponent else {
        return Some(text.to_owned());
    };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ("e-", digits),
        None => ("e+", exponent.strip_prefix('+').unwrap_or(exponent)),
    };
    is_digits(digits).then(|| [mantissa, sign, digits].concat())
}

/// Returns what is before the first of these marks, and what is after it, if one is there.
fn split_part<'a>(text: &'a str, marks: &[char]) -> (&'a str, Option<&'a str>) {
    let parts = text.split_once(marks);
    parts.map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Tells whether two numbers have the same value; false if one is not zero and has an exponent that
/// does not fit in 64 bits.
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

    fn write_by_serde_json(text: &str) -> Option<String> {
        let number = text.parse::<serde_json::Number>().ok()?;
        Some(number.to_string())
    }

    #[test]
    fn numbers_are_those_of_the_grammar() {
        for (text, expected) in [
            ("0", Some("0")),
            ("-0", Some("-0")),
            ("0.10", Some("0.10")),
            ("-1.5e+9", Some("-1.5e+9")),
            ("1e5", Some("1e+5")),
            ("1E-05", Some("1e-05")),
            ("18446744073709551616", Some("18446744073709551616")),
            ("", None),
            ("-", None),
            ("+1", None),
            ("01", None),
            ("1.", None),
            (".1", None),
            ("1e", None),
            ("1e+", None),
            ("1e1.0", None),
            ("1 ", None),
            ("--1", None),
        ] {
            assert_eq!(normalize_number(text).as_deref(), expected, "{text}");
            assert_eq!(write_by_serde_json(text).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_what_serde_json_writes(text in "[-+.eE019]{0,9}") {
            prop_assert_eq!(normalize_number(&text), write_by_serde_json(&text));
        }
    }
}
