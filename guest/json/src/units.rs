//! JSON of the types of `threadkeep-units`: amounts of money, tokens and prices.

use super::record::{FromJson, JsonError, ToJson};
use super::{JsonValue, record};
use threadkeep_units::money::NanoUsd;
use threadkeep_units::price::{TokenPrices, Usage};

record!(Usage {
    input,
    output,
    read,
    write,
    reasoning
});

record!(TokenPrices {
    input,
    output,
    read,
    write
});

impl ToJson for NanoUsd {
    fn write(&self, out: &mut String) {
        self.get().write(out);
    }
}

impl FromJson for NanoUsd {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        Self::new(u64::read(value, problem))
    }

    fn placeholder() -> Self {
        Self::ZERO
    }
}
