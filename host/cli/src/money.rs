//! Money as text: exact decimals of nano-USD, both ways. No floating-point number is involved.

/// Nano-USD in a US dollar.
const NANOS: u64 = 1_000_000_000;
/// Decimals of a nano-dollar.
const DECIMALS: usize = 9;

/// Formats exact decimal text: at least two decimals, no zeros after them. `0.00021`, `1.00`.
pub fn decimal(nanos: u64) -> String {
    let fraction = format!("{:09}", nanos % NANOS);
    let kept = fraction.trim_end_matches('0').len().max(2);
    format!("{}.{}", nanos / NANOS, &fraction[..kept])
}

/// Formats the amount with its currency: `0.00021 USD`.
pub fn shown(nanos: u64) -> String {
    format!("{} USD", decimal(nanos))
}

/// Parses a plain decimal such as `0.25`.
///
/// # Errors
/// A sentence, if the text is no plain decimal, finer than a nano-dollar, or too large.
pub fn parse(text: &str) -> Result<u64, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err("an amount is a plain decimal of US dollars such as 0.25".to_owned());
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > DECIMALS {
        return Err("an amount has at most nine decimals".to_owned());
    }
    let large = || "the amount is too large".to_owned();
    let nanos: u64 = format!("{fraction:0<9}").parse().map_err(|_| large())?;
    let whole: u64 = whole.parse().map_err(|_| large())?;
    whole
        .checked_mul(NANOS)
        .and_then(|whole| whole.checked_add(nanos))
        .ok_or_else(large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_both_ways() {
        for (text, nanos) in [
            ("0.00", 0),
            ("0.10", 100_000_000),
            ("0.00021", 210_000),
            ("1.00", NANOS),
            ("12.345678901", 12_345_678_901),
            ("18446744073.709551615", u64::MAX),
        ] {
            assert_eq!(decimal(nanos), text);
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
        assert_eq!(parse("3"), Ok(3 * NANOS));
        assert_eq!(parse("1.0000000010000"), Ok(NANOS + 1));
        assert_eq!(shown(210_000), "0.00021 USD");
    }

    #[test]
    fn nothing_else_is_an_amount() {
        for text in [
            "",
            ".5",
            "5.",
            "-1",
            "+1",
            "1e3",
            "NaN",
            "inf",
            "1,5",
            "1.2.3",
            "$1",
            "١",
            " 1",
            "0.0000000001",
            "18446744073.709551616",
            "99999999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
