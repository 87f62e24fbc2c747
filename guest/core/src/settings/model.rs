//! A model: its context window, its most output tokens and its prices.

use super::limits::decimal_field;
use super::{check_known_fields, flag_field, parse_object, text_field};
use crate::error::Error;
use crate::json::record;
use crate::json::{JsonObject, JsonValue};
use crate::ledger::TokenPrices;
use crate::limits::CAP_MAX;

/// Context window of a model whose file names none, in tokens.
pub const WINDOW_TOKENS_DEFAULT: u64 = 200_000;
/// Most output tokens of a model whose file names none.
pub const OUTPUT_TOKENS_DEFAULT: u64 = 4_096;

/// One model of the library, as a thread pins it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Its name in the library.
    pub name: String,
    /// Name of the provider that serves the model.
    pub provider: String,
    /// Tokens that fit in one request.
    pub window: u64,
    /// Most output tokens.
    pub output: u64,
    /// Longest time of one call, in milliseconds; `None` if the file names none.
    pub call_millis: Option<u64>,
    /// Most output tokens a second, for calls whose usage stays unknown; `None` if the file names
    /// none.
    pub rate: Option<u64>,
    /// True if the model takes images.
    pub images: bool,
    /// Prices of its tokens; with `None` a thread must allow unpriced calls.
    pub prices: Option<TokenPrices>,
}

record!(Model {
    name, provider, window, output, call_millis or nothing, rate or nothing, images or nothing,
    prices
});

impl Model {
    /// Reads `{"name", "provider", "window"?, "output"?, "call_millis"?, "rate"?, "images"?,
    /// "prices"?}`; prices are decimal text, USD per million tokens.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fields = parse_object("model", text)?;
        let name = text_field("model", &fields, "name")?.unwrap_or_default();
        let place = format!("models.{name}");
        check_known_fields(
            &place,
            &fields,
            &[
                "name",
                "provider",
                "window",
                "output",
                "call_millis",
                "rate",
                "images",
                "prices",
            ],
        )?;
        Ok(Self {
            provider: text_field(&place, &fields, "provider")?.unwrap_or_default(),
            window: positive_field(&place, &fields, "window")?.unwrap_or(WINDOW_TOKENS_DEFAULT),
            output: positive_field(&place, &fields, "output")?.unwrap_or(OUTPUT_TOKENS_DEFAULT),
            call_millis: positive_field(&place, &fields, "call_millis")?,
            rate: positive_field(&place, &fields, "rate")?,
            images: flag_field(&place, &fields, "images")?,
            prices: parse_prices(&place, fields.get("prices"))?,
            name,
        })
    }
}

/// Reads an optional number from 1 to [`CAP_MAX`].
pub(super) fn positive_field(
    place: &str,
    fields: &JsonObject<'_>,
    name: &str,
) -> Result<Option<u64>, Error> {
    match fields.get(name) {
        None | Some(JsonValue::Null) => Ok(None),
        Some(value) => {
            let fits = |n: &u64| (1..=CAP_MAX).contains(n);
            value.as_u64().filter(fits).map(Some).ok_or_else(|| {
                Error::invalid(
                    format!("{place}.{name}"),
                    &value.to_string(),
                    "must be a whole number above zero and below 2^63",
                )
            })
        }
    }
}

fn parse_prices(place: &str, value: Option<&JsonValue<'_>>) -> Result<Option<TokenPrices>, Error> {
    let place = format!("{place}.prices");
    let fields = match value {
        None | Some(JsonValue::Null) => return Ok(None),
        Some(JsonValue::Object(fields)) => fields,
        Some(other) => {
            return Err(Error::invalid(
                place,
                &other.to_string(),
                "must be an object of prices",
            ));
        }
    };
    check_known_fields(&place, fields, &["input", "output", "read", "write"])?;
    let price = |name: &str| match decimal_field(&place, fields, name)? {
        Some(price) if price.get() > CAP_MAX => Err(Error::invalid(
            format!("{place}.{name}"),
            &price.to_string(),
            "is more than any price: it is in USD per million tokens",
        )),
        price => Ok(price),
    };
    let needed = |name: &str| {
        price(name)?.ok_or_else(|| {
            Error::invalid(
                format!("{place}.{name}"),
                "",
                "is missing: a price in USD per million tokens",
            )
        })
    };
    let (input, output) = (needed("input")?, needed("output")?);
    Ok(Some(TokenPrices {
        input,
        output,
        read: price("read")?.unwrap_or(input),
        write: price("write")?.unwrap_or(input),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_prices_exactly_and_fills_in() {
        let model = Model::parse(concat!(
            r#"{"name":"m","provider":"p","prices":{"input":"0.15","output":"0.60","#,
            r#""read":"0.075"}}"#
        ))
        .unwrap();
        let prices = model.prices.unwrap();
        assert_eq!(
            (prices.input.get(), prices.read.get(), prices.write.get()),
            (150_000_000, 75_000_000, 150_000_000)
        );
        assert_eq!(
            (model.window, model.output),
            (WINDOW_TOKENS_DEFAULT, OUTPUT_TOKENS_DEFAULT)
        );
    }

    #[test]
    fn refuses_models_that_are_not_whole() {
        for text in [
            r#"{"name":"m","provider":"p","prices":{"input":"0.15"}}"#,
            r#"{"name":"m","provider":"p","prices":{"input":"free","output":"1"}}"#,
            r#"{"name":"m","provider":"p","window":0}"#,
            r#"{"name":"m","provider":"p","window":-1}"#,
            r#"{"name":"m","provider":"p","window":9223372036854775808}"#,
            r#"{"name":"m","provider":"p","output":18446744073709551615}"#,
            r#"{"name":"m","provider":"p","call_millis":9223372036854775808}"#,
            r#"{"name":"m","provider":"p","rate":9223372036854775808}"#,
            r#"{"name":"m","provider":"p","prices":{"input":"9223372036.854775808","output":"1"}}"#,
            r#"{"name":"m","provider":"p","images":"yes"}"#,
            r#"{"name":"m","provider":"p","windw":5}"#,
            r#"[]"#,
        ] {
            assert!(Model::parse(text).is_err(), "{text}");
        }
    }
}
