//! Errors of the decisions, in the order in which they are checked.
//!
//! The cases are the kinds of `error` in `wit/types.wit` that core itself can raise. The errors of
//! storage belong to the service that loads and commits.
//!
//! `Display` is the sentence that a person reads: what was wrong, and where. [`ErrorKind::advice`]
//! is what to do about it.

use crate::thread::StatusCause;
use crate::time::UnixTime;
use threadkeep_units::printable::is_hidden_control;
use threadkeep_units::time::rfc3339_seconds;

/// Longest part of a caller's value that an error repeats, in bytes.
pub const ECHO_BYTES_MAX: usize = 200;

/// Longest `field` and longest `problem` of an error, in bytes. Both may hold names that come from
/// files or callers.
const MESSAGE_PART_BYTES_MAX: usize = 800;

/// A refused request. Nothing was written.
///
/// It is one word large, because most functions of core may refuse: each result would else be as
/// large as the largest kind, and would be copied on the way to every caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<ErrorKind>);

/// The kind of a refusal, with what a caller needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// An argument, or a file of the library, is not valid.
    #[error("{}", describe_invalid(field, value, problem))]
    Invalid {
        /// The path of the argument or of the field in the file.
        field: String,
        /// The refused value, cut to [`ECHO_BYTES_MAX`].
        value: String,
        /// The problem and the remedy.
        problem: String,
        /// The nearest valid value.
        nearest: Option<String>,
    },
    /// The tenant has no thread, directive or model of this name.
    #[error("there is no {kind} {name:?}")]
    NotFound {
        /// The kind of the missing item: `thread`, `directive`, `model`.
        kind: &'static str,
        /// The name that the caller gave.
        name: String,
        /// The nearest existing name.
        nearest: Option<String>,
    },
    /// A thread with this id exists; upper and lower case do not count.
    #[error("a thread {0} exists")]
    Exists(String),
    /// Another holder has the lease of the thread.
    #[error("{thread} is held by {holder} until {}", rfc3339_seconds(expiry.seconds))]
    Busy {
        /// The thread.
        thread: String,
        /// The holder of the lease.
        holder: String,
        /// The end of the lease.
        expiry: UnixTime,
    },
    /// The thread has a successor. It is an error of its own because a caller needs the id of the
    /// successor, not a sentence about it.
    #[error("{thread} was continued by {next}")]
    Continued {
        /// The thread.
        thread: String,
        /// The next link of its chain.
        next: String,
    },
    /// The status of the thread does not allow the request.
    #[error("{thread} is {status}")]
    Refused {
        /// The thread.
        thread: String,
        /// Its status.
        status: String,
        /// The step that would make the request possible.
        advice: String,
    },
    /// The caller's token is older than the thread's.
    #[error("the run was taken over: token {expected} was replaced by {actual}")]
    Fenced {
        /// The token of the caller.
        expected: u64,
        /// The token of the thread.
        actual: u64,
    },
    /// A repeated call whose content differs, or a version that is not the pending one.
    #[error("{}", describe_conflict(field, expected, actual))]
    Conflict {
        /// The field that was compared.
        field: &'static str,
        /// The value that the caller named.
        expected: String,
        /// The stored value.
        actual: String,
    },
    /// A cap or the budget does not allow it.
    #[error("{}", .0.message)]
    Exceeded(StatusCause),
    /// A record was written in a newer format: it is read and never written.
    #[error(
        "the {record} of {thread} has the format {format}, which a newer program wrote: update \
         this one to change it"
    )]
    NewerFormat {
        /// The thread, or the root of its chain.
        thread: String,
        /// The kind of the record: `thread`, `head`, `chain`, `hold` or `creation key`.
        record: &'static str,
        /// Its format.
        format: u32,
    },
    /// The links of a chain contradict each other, or one of them is missing or unreadable.
    #[error("the chain is broken at {thread}: it {problem}")]
    BrokenChain {
        /// [`CHAIN_BROKEN`] or [`CHAIN_CYCLE`].
        code: &'static str,
        /// The link at fault.
        thread: String,
        /// The problem, a sentence that goes on after the link.
        problem: String,
    },
    /// The decision needs the state document of the thread, which is loaded for it alone. No caller
    /// sees this: the service loads it and decides again.
    #[error("the state of the thread was not loaded")]
    StateNotLoaded,
    /// Stored data contradict each other.
    #[error("the stored data contradict each other: {0}")]
    Corrupt(String),
}

/// Code of a chain of which a link is missing or unreadable, or whose links do not name each other.
pub const CHAIN_BROKEN: &str = "chain_broken";
/// Code of a chain whose links lead back to one of them.
pub const CHAIN_CYCLE: &str = "chain_cycle";

/// Advice about stored data that contradict each other or cannot be read.
pub const CORRUPT_ADVICE: &str =
    "keep a copy of the store, and put the thread back from an older one";

fn describe_invalid(field: &str, value: &str, problem: &str) -> String {
    match value {
        "" => format!("{field} {problem}"),
        value => format!("{field} {value:?} {problem}"),
    }
}

/// Stands in an [`ErrorKind::Conflict`] for the version of the pending step where none is pending.
pub(crate) const NO_STEP: &str = "none";

fn describe_conflict(field: &str, expected: &str, actual: &str) -> String {
    match field {
        // Compared by digests, which mean nothing to a person.
        "estimate" | "bill" => {
            format!("another {field} than this was recorded for the call before")
        }
        "decision" => format!("the call has a decision already: {actual}"),
        "input" | "draft" | "content" => format!("the key was used before, with another {field}"),
        "version" if actual == NO_STEP => format!(
            "no step of this thread waits for a result: version {expected} was answered before, or \
             was never a step of it"
        ),
        _ => format!("{field} is {actual}, not {expected}"),
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    #[inline(never)]
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl Error {
    /// Returns the kind of the refusal.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Returns the kind of the refusal as a value.
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Makes an error for a value that is not allowed.
    pub fn invalid(field: impl Into<String>, value: &str, problem: impl Into<String>) -> Self {
        Self::invalid_near(field.into(), value, problem.into(), None)
    }

    /// Makes an error for a name that is not among `names`; it carries the nearest of them.
    pub fn invalid_name(
        field: impl Into<String>,
        value: &str,
        problem: &str,
        names: &[&str],
    ) -> Self {
        let nearest = threadkeep_units::nearest::nearest(value, names.iter().copied());
        Self::invalid_near(field.into(), value, problem.to_owned(), nearest)
    }

    fn invalid_near(field: String, value: &str, problem: String, nearest: Option<&str>) -> Self {
        let kind = ErrorKind::Invalid {
            field: bounded_message(field),
            value: cut(value, ECHO_BYTES_MAX).to_owned(),
            problem: bounded_message(problem),
            nearest: nearest.map(str::to_owned),
        };
        kind.into()
    }

    /// Returns the same error with this value as the one that was probably meant.
    #[must_use]
    pub(crate) fn with_nearest(mut self, place: Option<&str>) -> Self {
        if let ErrorKind::Invalid { nearest, .. } = &mut *self.0 {
            *nearest = place.map(str::to_owned);
        }
        self
    }

    /// Makes an error for a name that the tenant does not have.
    pub fn not_found(kind: &'static str, name: &str, nearest: Option<String>) -> Self {
        let name = cut(name, ECHO_BYTES_MAX).to_owned();
        let kind = ErrorKind::NotFound {
            kind,
            name,
            nearest,
        };
        kind.into()
    }

    /// Makes an error for a thread that has a successor.
    pub fn continued_by(thread: &str, next: &str) -> Self {
        let (thread, next) = (thread.to_owned(), next.to_owned());
        ErrorKind::Continued { thread, next }.into()
    }

    /// Makes an error for a token that was replaced.
    pub fn fenced_by(expected: u64, actual: u64) -> Self {
        ErrorKind::Fenced { expected, actual }.into()
    }

    /// Makes an error for a call that names another value than the stored one.
    pub fn conflict(field: &'static str, expected: String, actual: String) -> Self {
        let kind = ErrorKind::Conflict {
            field,
            expected,
            actual,
        };
        kind.into()
    }

    /// Makes an error for what a cap or the budget does not allow.
    pub fn exceeded_by(cause: StatusCause) -> Self {
        ErrorKind::Exceeded(cause).into()
    }

    /// Makes an error for a link at fault; `problem` goes on after its id.
    pub fn broken_chain(
        code: &'static str,
        thread: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        let kind = ErrorKind::BrokenChain {
            code,
            thread: bounded_message(thread.into()),
            problem: bounded_message(problem.into()),
        };
        kind.into()
    }

    /// Makes an error for stored data that contradict each other.
    pub fn corrupt(message: impl Into<String>) -> Self {
        ErrorKind::Corrupt(message.into()).into()
    }
}

impl ErrorKind {
    /// Returns what to do about the error, for a person; an empty text where that is not known.
    pub fn advice(&self) -> String {
        let advice = match self {
            Self::Invalid { nearest, .. } | Self::NotFound { nearest, .. } => {
                let nearest = nearest.as_deref();
                return nearest.map_or_else(String::new, |name| format!("did you mean {name}?"));
            }
            Self::Continued { next, .. } => return format!("use {next}"),
            Self::Refused { advice, .. } => advice,
            Self::Exists(_) => "ids are the same without regard to case: choose another",
            Self::Busy { .. } => "try again then, or claim it if its holder has died",
            Self::Fenced { .. } => "submit no more for this run: read how the thread stands",
            Self::Conflict { field, .. } => match *field {
                "version" | "have" | "outcomes" => {
                    "read how the thread stands, and go on from there"
                }
                "decision" => "a decision stays as it was made",
                _ => "repeat it as it was; for another call, take another key",
            },
            // The message of a cause says what to do.
            Self::Exceeded(_) => "",
            Self::NewerFormat { .. } => "use the program that wrote it, or a newer one",
            Self::BrokenChain { .. } | Self::Corrupt(_) | Self::StateNotLoaded => CORRUPT_ADVICE,
        };
        advice.to_owned()
    }

    /// Returns the sentence with the advice behind it, as a model is told.
    pub fn to_full_text(&self) -> String {
        match self.advice() {
            advice if advice.is_empty() => self.to_string(),
            advice => format!("{self}: {advice}"),
        }
    }
}

/// Bounds a part of a message, and replaces each character that a terminal would obey instead of
/// showing it.
fn bounded_message(text: String) -> String {
    let shown = cut(&text, MESSAGE_PART_BYTES_MAX);
    if shown.len() == text.len() && !text.contains(is_hidden_control) {
        return text;
    }
    let mark = |c| if is_hidden_control(c) { '\u{fffd}' } else { c };
    shown.chars().map(mark).collect()
}

/// Returns the longest prefix of `text` that has at most `bytes` bytes and ends on a character
/// boundary.
pub fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_message_are_bounded_and_printable() {
        for (given, expected) in [
            ("inputs.topic", "inputs.topic"),
            (
                "inputs.\0\u{1b}[2J\u{202e}漢",
                "inputs.\u{fffd}\u{fffd}[2J\u{fffd}漢",
            ),
        ] {
            let error = Error::invalid(given, "", given);
            let ErrorKind::Invalid { field, problem, .. } = error.kind() else {
                panic!("it is another")
            };
            assert_eq!((field.as_str(), problem.as_str()), (expected, expected));
        }
        let long = "漢".repeat(MESSAGE_PART_BYTES_MAX);
        let unknown = Error::invalid_name(long.clone(), "", &long, &[]);
        assert!(unknown.to_string().len() <= 2 * MESSAGE_PART_BYTES_MAX + 2);
    }
}
