//! Usage and prices as records; their arithmetic is in `threadkeep-units`.

use crate::json::record::record;
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
