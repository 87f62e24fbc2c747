//! Ceilings: bounds on what passes through the host, whatever the component decides.
//!
//! A wrong or replaced component cannot spend or touch more: each model call and each tool call
//! goes through the [`RunPermit`] of its run, which knows the operator's policy and nothing of
//! threads. A call that would exceed a ceiling is refused *before* it is sent. For money and bytes
//! the worst case is recorded in the book first and replaced by the reported use afterwards. So
//! concurrent calls cannot exceed a ceiling together, and a process that dies in between has
//! counted too much and never too little.
//!
//! A refusal of a model call is a [`ModelFailure`](crate::models::ModelFailure) with the code
//! `ceiling_<name>`; the runner suspends the run with it, and a person who raises the ceiling
//! resumes it. A refused tool call is a failed result, which the model reads.
//!
//! Prices are those of the policy, else of the built-in table: a tenant's own file has no say in
//! them. The component has no account of a tenant yet, so these ceilings are what bounds one.

mod book;
mod bounds;
mod guard;
mod money;
mod permit;
mod rate;

pub use book::{FileBook, InMemoryBook, UsageBook, UsageTotals};
pub use guard::CeilingGuard;
pub(crate) use guard::PendingSettlement;
pub use permit::{CallNotice, RunPermit, ToolCallOutcome};
pub use rate::SLOT_WAIT_MAX;

use crate::models::{FailureKind, ModelFailure};
use std::time::Duration;
pub use threadkeep_adapters::ceilings::HostCeilings;

/// Prefix of the error codes of ceilings.
pub const CODE_PREFIX: &str = "ceiling_";

/// Refusal of a call or a run by a ceiling. Nothing was sent, unless the time of the run ended
/// while the call was under way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CeilingRefusal {
    /// The ceiling, as a policy file names it; `models` and `tools` for what is not granted, `book`
    /// where the totals cannot be stored.
    pub ceiling: &'static str,
    /// A sentence that names the bound and the policy that sets it.
    pub message: String,
    /// Time after which a retry may succeed, where time alone helps.
    pub retry_after: Option<Duration>,
}

impl CeilingRefusal {
    /// The error code, `ceiling_<name>`.
    pub fn code(&self) -> String {
        format!("{CODE_PREFIX}{}", self.ceiling)
    }

    /// The refusal as the failure of a model call that was not sent.
    pub fn to_failure(&self) -> ModelFailure {
        ModelFailure {
            kind: match self.retry_after {
                Some(_) => FailureKind::RateLimited,
                None => FailureKind::Permanent,
            },
            code: self.code(),
            message: self.message.clone(),
            retry_after: self.retry_after,
            sent: false,
            refused: false,
            usage: None,
            partial: String::new(),
        }
    }
}
