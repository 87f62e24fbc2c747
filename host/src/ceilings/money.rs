//! The operator's prices of a model, read from the text of a table.

use crate::library::models::ModelPrices;
use threadkeep_units::money::NanoUsd;
use threadkeep_units::price::TokenPrices;

/// Reads the prices of a table; a kind without a price of its own costs what input costs. `None` if
/// one of them is no amount.
pub(super) fn token_prices(prices: &ModelPrices) -> Option<TokenPrices> {
    let amount = |text: &String| NanoUsd::parse(text).ok();
    let input = amount(&prices.input)?;
    let or_input = |price: &Option<String>| match price {
        Some(price) => amount(price),
        None => Some(input),
    };
    Some(TokenPrices {
        input,
        output: amount(&prices.output)?,
        read: or_input(&prices.read)?,
        write: or_input(&prices.write)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_a_price_cost_what_input_costs() {
        let prices = ModelPrices {
            input: "2".to_owned(),
            output: "4".to_owned(),
            read: None,
            write: Some("3".to_owned()),
        };
        let read = token_prices(&prices).expect("they are prices");
        let dollars = |price: NanoUsd| price.get() / 1_000_000_000;
        assert_eq!((dollars(read.read), dollars(read.write)), (2, 3));
    }
}
