//! Reasons why the ledger refuses to move money.

use crate::money::NanoUsd;

/// Reason why no money was moved, in checking order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LedgerRefusal {
    /// Records contradict each other, or a caller broke the contract of an operation.
    #[error("the accounts contradict each other: {0}")]
    Integrity(&'static str),
    /// A sum is larger than the largest amount.
    #[error("the amount is larger than any")]
    Overflow,
    /// More accounts would lie above one another than a commit may touch.
    #[error("its account would lie under {0} others, and no more may lie above one another")]
    TooDeep(usize),
    /// The account's thread was ended or cancelled.
    #[error("its account is frozen")]
    Frozen,
    /// No chain draws on the account: it must be opened first.
    #[error("its account is closed")]
    Closed,
    /// The account is in debt and admits nothing until its limit is raised.
    #[error("its account owes {0} USD")]
    Debt(NanoUsd),
    /// A limit would be above what the operator's policy allows.
    #[error("a limit of {asked} USD is above the {most} USD that the operator's policy allows")]
    AbovePolicy {
        /// The requested limit.
        asked: NanoUsd,
        /// The operator's upper bound.
        most: NanoUsd,
    },
    /// The account has less than is needed.
    #[error("{need} USD are needed and {room} USD are left")]
    Short {
        /// Amount that would be set aside.
        need: NanoUsd,
        /// Amount that is left.
        room: NanoUsd,
    },
}
