//! Money: the most that a call may cost, its real cost, and the accounts that admit it.
//!
//! The runner reaches accounts through [`crate::plan::ThreadChange`], which holds the path of a
//! chain; nothing else moves money.

mod account;
mod path;
mod refusal;
mod unknown_usage;

pub use account::{ALLOCATED_MAX, Account};
pub use path::{ACCOUNTS_MAX, AccountPath, OverrunOutcome, ReserveGrant};
pub use refusal::LedgerRefusal;
pub use threadkeep_units::price::{TokenPrices, Usage};
pub use threadkeep_units::unknown_bill::{TOKENS_PER_SECOND, UnknownBill};
pub use unknown_usage::ChargeBasis;
