//! Statuses of a thread, and the causes of a status.

use crate::json::{record, words};

use std::fmt;

/// Status of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadStatus {
    /// Never started.
    Created,
    /// A holder runs it.
    Running,
    /// Goes on by itself, when children stop or time passes.
    Waiting,
    /// Needs a person or a driver: a limit, an error, the budget or an approval stopped it.
    Suspended,
    /// Takes the next input.
    Idle,
    /// Ended well.
    Completed,
    /// Ended by an error.
    Error,
    /// Ended by a cancel.
    Cancelled,
    /// Ended at once by a kill.
    Killed,
    /// Handed off to the next link of its chain.
    Continued,
}

words!(ThreadStatus {
    Created = "created",
    Running = "running",
    Waiting = "waiting",
    Suspended = "suspended",
    Idle = "idle",
    Completed = "completed",
    Error = "error",
    Cancelled = "cancelled",
    Killed = "killed",
    Continued = "continued",
});

impl ThreadStatus {
    /// Every status, in the order above.
    pub const ALL: [Self; 10] = [
        Self::Created,
        Self::Running,
        Self::Waiting,
        Self::Suspended,
        Self::Idle,
        Self::Completed,
        Self::Error,
        Self::Cancelled,
        Self::Killed,
        Self::Continued,
    ];

    /// Returns true if a chain whose tip has this status draws on its account. A chain that is idle
    /// or has ended locks no money.
    pub fn draws_on_account(self) -> bool {
        match self {
            Self::Created | Self::Running | Self::Waiting | Self::Suspended => true,
            Self::Idle
            | Self::Completed
            | Self::Error
            | Self::Cancelled
            | Self::Killed
            | Self::Continued => false,
        }
    }

    /// Returns true for the end statuses: an ended thread only gains a pointer and corrections of
    /// usage.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Error | Self::Cancelled | Self::Killed | Self::Continued => {
                true
            }
            Self::Created | Self::Running | Self::Waiting | Self::Suspended | Self::Idle => false,
        }
    }
}

impl fmt::Display for ThreadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reason why a thread stopped, waits or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCause {
    /// `limit`, `error`, `budget`, `approval`, `cancelled` or `killed`.
    pub reason: String,
    /// A stable code, such as `turns_exceeded`.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
    /// The value that was reached.
    pub value: Option<u64>,
    /// The bound it was compared with.
    pub maximum: Option<u64>,
    /// Names that only some causes have.
    pub detail: Option<Box<CauseDetail>>,
}

/// Names that only some causes have. It is boxed, because every error may hold a cause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CauseDetail {
    /// The code of the failure that it reports, as the provider, its adapter or the host gave it.
    pub failure: Option<String>,
    /// The chain above whose account lacks the money for a raise.
    pub account: Option<String>,
}

record!(CauseDetail { failure, account });

record!(StatusCause {
    reason,
    code,
    message,
    value,
    maximum,
    detail or nothing
});

impl StatusCause {
    /// Creates a cause without numbers.
    pub fn new(reason: &str, code: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            code: code.into(),
            message: message.into(),
            value: None,
            maximum: None,
            detail: None,
        }
    }

    /// Returns the milliseconds that a provider asks to wait before the next call.
    pub fn retry_millis(&self) -> Option<u64> {
        self.value.filter(|_| self.reason == "error")
    }

    /// Returns true if its value and its bound are nano-USD.
    pub fn has_money_values(&self) -> bool {
        matches!(&*self.code, "spend_exceeded" | "money_held")
    }

    /// Returns true if it says that a reply was no turn: it cannot be read, or is too large.
    pub fn is_unusable_reply(&self) -> bool {
        matches!(&*self.code, "bad_reply" | "reply_too_large")
    }

    /// Adds what it names beside its code.
    pub fn with_detail(self, detail: CauseDetail) -> Self {
        let detail = Some(Box::new(detail));
        Self { detail, ..self }
    }

    /// Creates a cause with the value reached and its bound.
    pub fn with_bound(
        reason: &str,
        code: &str,
        message: impl Into<String>,
        value: u64,
        maximum: u64,
    ) -> Self {
        Self {
            value: Some(value),
            maximum: Some(maximum),
            ..Self::new(reason, code, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_statuses_are_those_that_the_host_knows() {
        for status in ThreadStatus::ALL {
            let known = threadkeep_units::status::has_ended(status.as_str());
            assert_eq!(known, status.is_terminal(), "{status}");
        }
    }

    /// Symptom: the amounts of a run that waits for held money were not told as money.
    #[test]
    fn what_names_an_amount_is_of_money() {
        let of_money = |code| StatusCause::new("budget", code, "").has_money_values();
        assert!(of_money("spend_exceeded") && of_money("money_held"));
        assert!(!of_money("turns_exceeded"));
    }
}
