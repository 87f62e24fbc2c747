//! Money: what a call may cost, what it did cost, and the account of a chain that admits it.

mod account;
mod price;

pub use account::{Account, Shortage};
pub use price::{Prices, Usage};
