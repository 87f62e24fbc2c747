//! Why the ledger moves nothing.

use crate::money::NanoUsd;

/// Why nothing was moved, in the order in which it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Records contradict each other, or a caller does what it was told not to.
    #[error("the accounts contradict each other: {0}")]
    Integrity(&'static str),
    /// Larger than any amount.
    #[error("the amount is larger than any")]
    Overflow,
    /// More accounts would lie above one another than a commit may touch.
    #[error("its account would lie under {0} others, and no more may lie above one another")]
    Deep(usize),
    /// It was ended, or cancelled.
    #[error("its account is frozen")]
    Frozen,
    /// Nobody draws on it: it must be opened first.
    #[error("its account is closed")]
    Closed,
    /// It is in debt and admits nothing until its limit is raised.
    #[error("its account owes {0} USD")]
    Debt(NanoUsd),
    /// A limit would be above what the operator's policy allows.
    #[error("a limit of {asked} USD is above the {most} USD that the operator's policy allows")]
    Above {
        /// The limit.
        asked: NanoUsd,
        /// The operator's.
        most: NanoUsd,
    },
    /// There is not enough left.
    #[error("{need} USD are needed and {room} USD are left")]
    Short {
        /// What would be set aside.
        need: NanoUsd,
        /// What is left.
        room: NanoUsd,
    },
}
