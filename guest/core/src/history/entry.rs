//! Entries: the additions of one commit of a thread, chained by the hash of the stored text.

use super::Event;
use crate::error::Error;
use crate::hash::sha256_text;
use crate::json::{self, JsonValue, record, words};
use crate::ledger::Usage;
use crate::money::NanoUsd;
use crate::state::StateChange;
use crate::thread::ThreadStatus;
use crate::time::UnixTime;

/// Reason of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitReason {
    /// Input arrived.
    UserMessage,
    /// A reply, with the calls that it makes.
    AssistantTurn,
    /// Results of a round.
    ToolResults,
    /// A further attempt of the same request.
    Attempt,
    /// An external loop holds the thread.
    Opened,
    /// The run is over.
    RunFinished,
    /// The run stopped and needs a person or a driver.
    Suspended,
    /// An attempt failed.
    Error,
    /// The run was ended by a cancel or a kill.
    Cancelled,
    /// The run went on, or was taken over. Of a thread that had ended: it goes on in another one.
    Resumed,
    /// The run goes on in another thread, with a part of the conversation.
    Handoff,
    /// A change that is not part of a run: a title, caps.
    Changed,
    /// The cost of attempts, recorded without any other change.
    Settled,
}

words!(CommitReason {
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
    Handoff = "handoff",
    Changed = "changed",
    Settled = "settled",
});

/// One entry, as it is stored in the log `history`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// [`crate::thread::FORMAT`].
    pub format: u32,
    /// Its version: its position in the log, counted on from the base of its thread.
    pub version: u64,
    /// Reason of the commit.
    pub reason: CommitReason,
    /// Time of the commit.
    pub time: UnixTime,
    /// Number of the run.
    pub run: u64,
    /// Random name of the commit: after an unknown outcome it tells whether the entry is the
    /// caller's own.
    pub commit: String,
    /// SHA-256 of the entry before; for the first, [`crate::thread::genesis_hash`].
    pub previous: String,
    /// The step that it answers; of a start, the version before it and its input.
    pub answers: Option<StepAnswer>,
    /// Settlement of the hold of that step.
    pub settled: Option<SettledHold>,
    /// The attempt that it admits.
    pub admitted: Option<AdmittedAttempt>,
    /// Calls of an external loop that were not settled before it ended, and were charged.
    pub charged: Vec<SettledHold>,
    /// JSON object of the caller: where the run that the entry begins comes from.
    pub about: Option<JsonValue<'static>>,
    /// The end of the run, in the entry that ends it.
    pub ended: Option<RunEnd>,
    /// Its change of the state of the thread.
    pub state: Option<StateChange>,
    /// If it did not: version of the thread's own entry that changed it last; 0 if none did.
    pub state_at: u64,
    /// The events, in order.
    pub events: Vec<Event>,
}

record!(Entry {
    format, version, reason, time, run, commit, previous, answers or nothing, settled or nothing,
    admitted or nothing, charged or nothing, about or nothing, ended or nothing,
    state or nothing, state_at or nothing, events
});

/// The end of a run: how it ended, and what it used, all links of its chain together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// Status of the thread afterwards.
    pub status: ThreadStatus,
    /// Code of the cause, where there is one.
    pub termination: Option<String>,
    /// Completed model calls.
    pub turns: u64,
    /// Tokens of every kind.
    pub tokens: u64,
    /// Milliseconds inside steps.
    pub duration: u64,
}

record!(RunEnd { status, termination or nothing, turns, tokens, duration });

/// The step that an entry answers, and the hash of its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepAnswer {
    /// Version that handed the step out.
    pub version: u64,
    /// SHA-256 of the result, to recognize a repeated one.
    pub hash: String,
}

record!(StepAnswer { version, hash });

/// Settlement of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledHold {
    /// Version that admitted the attempt.
    pub version: u64,
    /// Amount that was set aside.
    pub hold: NanoUsd,
    /// Cost of the attempt.
    pub spend: NanoUsd,
    /// Source of that cost.
    pub how: CostSource,
    /// The tokens that were reported or estimated, if any were.
    pub usage: Option<Usage>,
}

record!(SettledHold { version, hold, spend, how, usage or nothing });

/// Source of the cost of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostSource {
    /// From the usage that the provider reported.
    Settled,
    /// Nothing was sent.
    Released,
    /// The reply is whole and no usage was reported: from the estimated tokens of request and
    /// reply.
    Estimated,
    /// Unknown usage: by the time the attempt was under way, or the whole hold if the operator
    /// wants it so.
    Charged,
}

words!(CostSource {
    Settled = "settled", Released = "released", Estimated = "estimated", Charged = "charged"
});

/// An attempt that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedAttempt {
    /// Amount that is set aside.
    pub hold: NanoUsd,
    /// Most output tokens.
    pub output: u64,
    /// SHA-256 of the request.
    pub request: String,
    /// The name that an external loop gave it.
    pub key: Option<String>,
}

record!(AdmittedAttempt { hold, output, request, key or nothing });

impl Entry {
    /// Serializes the entry to the text that is stored.
    pub fn to_text(&self) -> String {
        json::to_text(self)
    }

    /// Reads a stored entry.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        json::read(text).map_err(|e| Error::corrupt(format!("an entry cannot be read: {e}")))
    }

    /// Returns the hash that chains an entry of this text.
    pub fn hash_of(text: &str) -> String {
        sha256_text(text)
    }
}
