//! The error of every export as an enum: the record `error` of `wit/types.wit`, with its details
//! read. The payloads carry the component's own sentences: `message` says what was wrong, and
//! `advice` what to do about it, which is empty where that is not known.

use super::{Cause, Failure, Instant, Lease, Unreadable};

/// An error of the component, by its kind. `wit/types.wit` says what each kind means.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// An argument, or a file of the library, is not valid. Nothing was written.
    Invalid(InvalidValue),
    /// No such thing, for this tenant.
    NotFound(MissingName),
    /// The thread was deleted: only its tombstone is left.
    Deleted(DeletedThread),
    /// A thread with this id, in any case, exists.
    Exists(TakenId),
    /// Somebody holds the thread.
    Busy(BusyThread),
    /// The thread has a successor: what is meant for it belongs there.
    Continued(ContinuedThread),
    /// The status of the thread does not allow it.
    Refused(RefusedStatus),
    /// The caller does not hold the thread: its token is not the thread's.
    Fenced(ValueMismatch),
    /// A repeated call that is not the same, or a version that is not the newest.
    Conflict(ValueMismatch),
    /// A cap or the budget does not allow it. The message of the cause says what to do.
    Exceeded(Cause),
    /// The store cannot be reached, or other writers were faster each time. Nothing was written.
    Unavailable(CallFailure),
    /// Nobody knows whether it was written.
    Unknown(CallFailure),
    /// The store is full. Nothing was written.
    Full(CallFailure),
    /// Stored data contradict each other, or cannot be read. Nothing was written.
    Corrupt(StoredDamage),
    /// Any other failure; also an error of a kind or with details that this host does not know.
    Other(CallFailure),
}

/// A value that is not allowed.
#[derive(Debug, Clone, Default)]
pub struct InvalidValue {
    /// The path of the argument, or of the field in it or in a file.
    pub field: String,
    /// The value, cut to 200 bytes.
    pub value: String,
    /// The problem, and what would be right.
    pub problem: String,
    /// The nearest valid value.
    pub nearest: Option<String>,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// A name that is not there.
#[derive(Debug, Clone, Default)]
pub struct MissingName {
    /// `thread`, `directive`, `model`, `tool`, `provider`.
    pub kind: String,
    /// The name that was given, cut to 200 bytes.
    pub name: String,
    /// The nearest name that exists.
    pub nearest: Option<String>,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// A thread of which only a tombstone is left.
#[derive(Debug, Clone, Default)]
pub struct DeletedThread {
    /// The thread.
    pub thread: String,
    /// The time of its deletion, where that is known.
    pub time: Option<Instant>,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// An id that a thread has.
#[derive(Debug, Clone, Default)]
pub struct TakenId {
    /// The id that was asked for. The thread that has it may write it in another case.
    pub thread: String,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// A thread that another holder has.
#[derive(Debug, Clone)]
pub struct BusyThread {
    /// The lease of the holder.
    pub lease: Lease,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// A thread that was continued.
#[derive(Debug, Clone, Default)]
pub struct ContinuedThread {
    /// The thread.
    pub thread: String,
    /// The next link of its chain.
    pub next: String,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// A status that does not allow the call.
#[derive(Debug, Clone, Default)]
pub struct RefusedStatus {
    /// The thread.
    pub thread: String,
    /// Its status now.
    pub status: String,
    /// The sentence for a person.
    pub message: String,
    /// The step that would allow it, for a person.
    pub advice: String,
}

/// A precondition that does not hold.
#[derive(Debug, Clone, Default)]
pub struct ValueMismatch {
    /// The name of what was compared: `version`, `token`, `have`, `outcomes`, or a part of a
    /// repeated call.
    pub field: String,
    /// The value that the caller named.
    pub expected: String,
    /// The value that is there.
    pub actual: String,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// A failure that has a code and no other fields.
#[derive(Debug, Clone, Default)]
pub struct CallFailure {
    /// A short stable code.
    pub code: String,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

/// Stored data that contradict each other, or that cannot be read.
#[derive(Debug, Clone, Default)]
pub struct StoredDamage {
    /// `contradiction`, `chain_broken`, `chain_cycle`, or the code of the store.
    pub code: String,
    /// The thread at fault, in lower case; `None` for a call that names none.
    pub thread: Option<String>,
    /// The sentence for a person, which names the record.
    pub message: String,
    /// The remedy, for a person.
    pub advice: String,
}

impl Error {
    /// Returns the kind, as the contract names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NotFound(_) => "not-found",
            Self::Deleted(_) => "deleted",
            Self::Exists(_) => "exists",
            Self::Busy(_) => "busy",
            Self::Continued(_) => "continued",
            Self::Refused(_) => "refused",
            Self::Fenced(_) => "fenced",
            Self::Conflict(_) => "conflict",
            Self::Exceeded(_) => "exceeded",
            Self::Unavailable(_) => "unavailable",
            Self::Unknown(_) => "unknown",
            Self::Full(_) => "full",
            Self::Corrupt(_) => "corrupt",
            Self::Other(_) => "other",
        }
    }

    /// Returns the sentence for a person: the problem and its place.
    pub fn message(&self) -> &str {
        self.sentences().0
    }

    /// Returns the remedy, for a person; an empty text where it is not known.
    pub fn advice(&self) -> &str {
        self.sentences().1
    }

    fn sentences(&self) -> (&str, &str) {
        match self {
            Self::Invalid(e) => (&e.message, &e.advice),
            Self::NotFound(e) => (&e.message, &e.advice),
            Self::Deleted(e) => (&e.message, &e.advice),
            Self::Exists(e) => (&e.message, &e.advice),
            Self::Busy(e) => (&e.message, &e.advice),
            Self::Continued(e) => (&e.message, &e.advice),
            Self::Refused(e) => (&e.message, &e.advice),
            Self::Fenced(e) | Self::Conflict(e) => (&e.message, &e.advice),
            Self::Exceeded(e) => (&e.message, ""),
            Self::Corrupt(e) => (&e.message, &e.advice),
            Self::Unavailable(e) | Self::Unknown(e) | Self::Full(e) | Self::Other(e) => {
                (&e.message, &e.advice)
            }
        }
    }
}

/// Writes the sentence without the advice.
impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

/// The damage of a thread that a page cannot show, as a call that names the thread refuses it.
impl From<Unreadable> for StoredDamage {
    fn from(found: Unreadable) -> Self {
        Self {
            code: found.why.code,
            thread: Some(found.thread),
            message: found.why.message,
            advice: String::new(),
        }
    }
}

/// The damage that a call refused with, as a page names it.
impl From<StoredDamage> for Failure {
    fn from(damage: StoredDamage) -> Self {
        Self {
            code: damage.code,
            message: damage.message,
        }
    }
}
