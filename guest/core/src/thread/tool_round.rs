//! Calls that have no result yet, and the consent that some of them need before they are run.

use crate::json::{record, words};

/// A tool round that has calls without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRound {
    /// Version of the entry that holds the calls.
    pub version: u64,
    /// The calls without a result, in order.
    pub calls: Vec<RoundCall>,
}

record!(ToolRound { version, calls });

/// A call without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundCall {
    /// Index of its `tool_use` event.
    pub index: u32,
    /// True if the call may be run again.
    pub idempotent: bool,
    /// True if the call waits for children; no driver runs such a call.
    pub waits: bool,
    /// State of the consent that the call needs; `None` for a call that needs none.
    pub consent: Option<CallConsent>,
}

record!(RoundCall { index, idempotent, waits or nothing, consent or nothing });

impl RoundCall {
    /// Returns true if a driver runs the call: it waits for nothing and needs no decision any more.
    pub fn is_handed_out(&self) -> bool {
        !self.waits && matches!(self.consent, None | Some(CallConsent::Given))
    }

    /// Returns true if nobody has decided yet about the call, which needs it.
    pub fn is_undecided(&self) -> bool {
        self.consent == Some(CallConsent::Asked)
    }

    /// Returns true if the call was never handed out: it waits for a decision, or for the commit
    /// that applies one.
    pub fn was_not_run(&self) -> bool {
        !matches!(self.consent, None | Some(CallConsent::Given))
    }
}

/// Code of the cause for which a thread is suspended until its calls are decided.
pub const APPROVAL_NEEDED: &str = "approval_needed";

/// State of the consent that an open call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallConsent {
    /// Nobody has decided.
    Asked,
    /// Approved: the next commit of the run hands it out.
    Approved,
    /// Denied while a driver held the thread, which records the result.
    Denied,
    /// Answered while a driver held the thread, which records the result.
    Answered,
    /// Approved and handed out. It is never handed out again by itself.
    Given,
}

words!(CallConsent {
    Asked = "asked", Approved = "approved", Denied = "denied", Answered = "answered",
    Given = "given"
});
