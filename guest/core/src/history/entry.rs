//! Entries: what one commit of a thread adds, chained by the hash of the stored text.

use super::Event;
use crate::error::Error;
use crate::hash::sha256_text;
use crate::json::{
    self,
    record::{record, words},
};
use crate::ledger::Usage;
use crate::money::NanoUsd;
use crate::time::Instant;

/// Why a commit was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Input arrived.
    UserMessage,
    /// A reply, with the calls that it makes.
    AssistantTurn,
    /// Results of a round.
    ToolResults,
    /// A further attempt of the same request.
    Attempt,
    /// A host holds the thread for a loop of its own.
    Opened,
    /// The run is over.
    RunFinished,
    /// The run needs somebody.
    Suspended,
    /// An attempt failed.
    Error,
    /// The run was ended by somebody.
    Cancelled,
    /// The run went on, or was taken over.
    Resumed,
    /// A change that is not part of a run: a title, caps.
    Changed,
    /// What attempts cost, told by itself.
    Settled,
}

words!(Reason {
    UserMessage = "user-message",
    AssistantTurn = "assistant-turn",
    ToolResults = "tool-results",
    Attempt = "attempt",
    Opened = "opened",
    RunFinished = "run-finished",
    Suspended = "suspended",
    Error = "error",
    Cancelled = "cancelled",
    Resumed = "resumed",
    Changed = "changed",
    Settled = "settled",
});

/// One entry, as it is stored in the log `history`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// [`crate::thread::FORMAT`].
    pub format: u32,
    /// Its position in the log.
    pub version: u64,
    /// Why.
    pub reason: Reason,
    /// When.
    pub time: Instant,
    /// Number of the run.
    pub run: u64,
    /// Random name of the commit: tells after an unknown outcome whether it was ours.
    pub commit: String,
    /// SHA-256 of the entry before; empty for the first.
    pub previous: String,
    /// The step that it answers.
    pub answers: Option<Answer>,
    /// What became of the hold of that step.
    pub settled: Option<Settled>,
    /// The attempt that it admits.
    pub admitted: Option<Admitted>,
    /// Calls of a host's own loop that nobody settled before it ended.
    pub charged: Vec<Settled>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

record!(Entry {
    format, version, reason, time, run, commit, previous, answers or nothing, settled or nothing,
    admitted or nothing, charged or nothing, events
});

/// Which step an entry answers, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Version that handed the step out.
    pub version: u64,
    /// SHA-256 of the result, so that a repeated one is known.
    pub hash: String,
}

record!(Answer { version, hash });

/// What became of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Version that admitted the attempt.
    pub version: u64,
    /// What was set aside.
    pub hold: NanoUsd,
    /// What it cost.
    pub spend: NanoUsd,
    /// How that is known.
    pub how: How,
    /// The tokens that were reported or estimated, if any were.
    pub usage: Option<Usage>,
}

record!(Settled { version, hold, spend, how, usage or nothing });

/// How the cost of an attempt is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// From the usage that the provider reported.
    Settled,
    /// Nothing was sent.
    Released,
    /// The reply is whole and no usage was reported: from the estimated tokens of request and reply.
    Estimated,
    /// Nobody knows: by the time it was under way, or the whole hold if the operator wants it so.
    Charged,
}

words!(How {
    Settled = "settled", Released = "released", Estimated = "estimated", Charged = "charged"
});

/// An attempt that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// What is set aside.
    pub hold: NanoUsd,
    /// Most output tokens.
    pub output: u64,
    /// SHA-256 of the request.
    pub request: String,
    /// The name that a host's own loop gave it.
    pub key: Option<String>,
}

record!(Admitted { hold, output, request, key or nothing });

impl Entry {
    /// The text that is stored.
    pub fn to_text(&self) -> String {
        json::text(self)
    }

    /// Read a stored entry.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        json::read(text).map_err(|e| Error::Corrupt(format!("an entry cannot be read: {e}")))
    }

    /// The hash that chains an entry of this text.
    pub fn hash_of(text: &str) -> String {
        sha256_text(text)
    }
}
