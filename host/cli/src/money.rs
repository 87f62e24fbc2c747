//! Money on the command line; its arithmetic and text are in `threadkeep-units`.

use threadkeep_units::money::{AmountError, NanoUsd};

/// Formats an amount exactly: at least two decimals, no zeros after them. `0.00021`, `1.00`.
pub fn format_decimal(nanos: u64) -> String {
    NanoUsd::new(nanos).to_string()
}

/// Formats an amount for a person, with the currency: `0.00021 USD`.
pub fn format_usd(nanos: u64) -> String {
    format!("{} USD", format_decimal(nanos))
}

/// Reads a plain decimal such as `0.25`.
///
/// # Errors
/// A sentence, if it is no such text, finer than a nano-USD, or too large.
pub fn parse(text: &str) -> Result<u64, String> {
    let sentence = |error| match error {
        AmountError::NotDecimal => "an amount is a plain decimal of US dollars such as 0.25",
        AmountError::TooFine => "an amount has at most nine decimals",
        AmountError::TooLarge => "the amount is too large",
    };
    let amount = NanoUsd::parse(text);
    amount
        .map(NanoUsd::get)
        .map_err(|error| sentence(error).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_sentence() {
        for (text, sentence) in [
            ("$1", "plain decimal"),
            ("0.0000000001", "nine decimals"),
            ("18446744073.709551616", "too large"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(sentence), "{text}: {refused}");
        }
        assert_eq!(parse("0.25"), Ok(250_000_000));
        assert_eq!(format_usd(210_000), "0.00021 USD");
    }
}
