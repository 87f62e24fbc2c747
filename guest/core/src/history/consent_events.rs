//! Events of calls that need consent.

use crate::json::record;
use crate::money::NanoUsd;
use crate::thread::DecisionVerdict;

/// A person decided about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionEvent {
    /// Version of the entry that holds the call.
    pub version: u64,
    /// Index of the call in it.
    pub index: u32,
    /// The decision.
    pub decision: DecisionVerdict,
    /// A note of the person. An answer is the result of the call and stands there.
    pub note: Option<String>,
}

record!(DecisionEvent { version, index, decision, note or nothing });

/// A tool was called and asks for consent itself: the call stays open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsentAsked {
    /// Version of the entry that holds the call.
    pub version: u64,
    /// Index of the call in it.
    pub index: u32,
    /// Name of the tool.
    pub name: String,
    /// The tool's reason, for a person.
    pub text: String,
    /// Cost of asking the tool.
    pub cost: NanoUsd,
}

record!(ConsentAsked {
    version,
    index,
    name,
    text,
    cost
});
