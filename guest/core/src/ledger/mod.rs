//! Money: the most that a call may cost, its real cost, and the accounts that admit it.
//!
//! The runner reaches accounts through [`crate::plan::Change`], which holds the path of a chain;
//! nothing else moves money.

mod account;
mod path;
mod price;
mod refusal;
mod unknown;

pub use account::{Account, TAKEN_MAX};
pub use path::{ACCOUNTS_MAX, Grant, Path, Settled};
pub use refusal::Refusal;
pub use threadkeep_units::price::{TokenPrices, Usage};
pub use threadkeep_units::unknown_bill::{TOKENS_PER_SECOND, UnknownBill};
pub use unknown::ChargeBasis;
