//! The decision of a person about a call that needs consent.
//!
//! A head keeps one word for each open call. The words of the person, which may be long, stand in a
//! record of their own until a commit of the thread writes them into its history. The record stays
//! for ever without them, so that a decision that is sent again is known.

use super::{CallConsent, RecordFormat};
use crate::json::{record, words};

/// A decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionVerdict {
    /// The call is run.
    Approve,
    /// The call is not run, and the model is told so.
    Deny,
    /// The call is not run: a text of the person is its result.
    Answer,
}

words!(DecisionVerdict { Approve = "approve", Deny = "deny", Answer = "answer" });

impl DecisionVerdict {
    /// The state of a call for which the decision was taken and is not applied yet.
    pub fn as_consent(self) -> CallConsent {
        match self {
            Self::Approve => CallConsent::Approved,
            Self::Deny => CallConsent::Denied,
            Self::Answer => CallConsent::Answered,
        }
    }
}

/// Record of a decision, by (root key, thread key, call id).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRecord {
    /// [`RecordFormat::CURRENT`].
    pub format: RecordFormat,
    /// The decision.
    pub decision: DecisionVerdict,
    /// Digest of the signal, to recognize a repeated one.
    pub digest: String,
    /// True until an entry of the thread has the decision.
    pub parked: bool,
    /// Words of the person: a note, or the answer; only while it is parked.
    pub text: Option<String>,
}

record!(DecisionRecord { format, decision, digest, parked or nothing, text or nothing });
