//! Errors of the exports as the contract's `error`: kind, code, sentences for a person, and details
//! for a program.

use crate::ports::{CONTRADICTION, LibraryError, StorageError};
use crate::service::{Error, ErrorKind, NEWER_FORMAT};
use threadkeep_core::error::{CORRUPT_ADVICE, ErrorKind as CoreErrorKind};
use threadkeep_core::id;
use threadkeep_core::json::ObjectWriter;
use threadkeep_core::thread::StatusCause;

/// Advice where nothing was written because something could not be reached.
const UNAVAILABLE_ADVICE: &str = "nothing was written: try again";
/// Advice where nobody knows whether a commit was written.
const UNKNOWN_ADVICE: &str = "repeat the same call: it finds out and does nothing twice";
/// Advice where the store has no room.
const FULL_ADVICE: &str = "free space or raise the quota";
/// Advice about an answer of an import that its contract does not allow.
const HOST_ADVICE: &str = "this is a fault of the host or of its files: mend it there";

/// An error as the contract's record `error` has it. `wit/types.wit` documents each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorRecord {
    /// One of the kinds that `wit/types.wit` lists.
    pub kind: &'static str,
    /// The code beside the kind; empty where the kind says all.
    pub code: String,
    /// The sentence for a person.
    pub message: String,
    /// The remedy, for a person; empty where it is not known.
    pub advice: String,
    /// The thread that it is about.
    pub thread: Option<String>,
    /// JSON object: what a program may decide by.
    pub details: String,
}

impl ErrorRecord {
    /// Makes the record of an error of a call that names this thread, if it names one.
    pub fn new(error: Error, called: Option<&str>) -> Self {
        let mut record = match error.into_kind() {
            ErrorKind::Core(error) => Self::of_core(error),
            ErrorKind::Deleted(thread) => Self {
                thread: Some(thread.clone()),
                ..Self::of_kind("deleted", "", format!("thread {thread} was deleted"), "")
            },
            ErrorKind::Storage(error) => Self::of_storage(error),
            ErrorKind::Library(error) => Self::of_library(error),
            ErrorKind::BadAnswer(message) => {
                Self::of_kind("other", "bad-answer", message, HOST_ADVICE)
            }
        };
        if record.thread.is_none() {
            record.thread = called.map(|name| id::key(&id::printable_id(name)));
        }
        record
    }

    /// Makes the record for a function that this version has not built.
    pub fn not_built(name: &str) -> Self {
        let message = format!("{name} is not built in this version of the component");
        Self::of_kind("other", "not-built", message, "")
    }

    fn of_kind(kind: &'static str, code: &str, message: String, advice: &str) -> Self {
        Self {
            kind,
            code: code.to_owned(),
            message,
            advice: advice.to_owned(),
            thread: None,
            details: "{}".to_owned(),
        }
    }

    fn of_storage(error: StorageError) -> Self {
        let (kind, code, message, advice) = match error {
            StorageError::Unavailable(code, message) => {
                ("unavailable", code, message, UNAVAILABLE_ADVICE)
            }
            StorageError::OutcomeUnknown(code, message) => {
                ("unknown", code, message, UNKNOWN_ADVICE)
            }
            StorageError::QuotaExceeded(code, message) => ("full", code, message, FULL_ADVICE),
            StorageError::Corrupt(code, message) => ("corrupt", code, message, CORRUPT_ADVICE),
            StorageError::TooLarge(code, message) | StorageError::Other(code, message) => {
                ("other", code, message, "")
            }
        };
        Self::of_kind(kind, &code, message, advice)
    }

    fn of_library(error: LibraryError) -> Self {
        let (kind, code, message, advice) = match error {
            LibraryError::Invalid {
                field,
                value,
                problem,
                nearest,
            } => {
                return Self::of_core(CoreErrorKind::Invalid {
                    field,
                    value,
                    problem,
                    nearest,
                });
            }
            LibraryError::Unavailable(code, message) => {
                ("unavailable", code, message, UNAVAILABLE_ADVICE)
            }
            LibraryError::Other(code, message) => ("other", code, message, ""),
        };
        Self::of_kind(kind, &code, message, advice)
    }

    fn of_core(error: CoreErrorKind) -> Self {
        let message = match &error {
            CoreErrorKind::Corrupt(message) => message.clone(),
            error => error.to_string(),
        };
        let (details, advice) = (write_details(&error), error.advice());
        let (kind, code, thread) = identify_error(error);
        Self {
            kind,
            code,
            message,
            advice,
            thread,
            details,
        }
    }
}

/// Returns kind, code and thread of an error.
fn identify_error(error: CoreErrorKind) -> (&'static str, String, Option<String>) {
    match error {
        CoreErrorKind::Invalid { .. } => ("invalid", String::new(), None),
        CoreErrorKind::NotFound { kind, .. } => ("not-found", kind.to_owned(), None),
        CoreErrorKind::Exists(thread) => ("exists", String::new(), Some(thread)),
        CoreErrorKind::Busy { thread, .. } => ("busy", String::new(), Some(thread)),
        CoreErrorKind::Continued { thread, .. } => ("continued", String::new(), Some(thread)),
        CoreErrorKind::Refused { thread, .. } => ("refused", String::new(), Some(thread)),
        CoreErrorKind::Fenced { .. } => ("fenced", "token".to_owned(), None),
        CoreErrorKind::Conflict { field, .. } => ("conflict", field.to_owned(), None),
        CoreErrorKind::Exceeded(cause) => ("exceeded", cause.code, None),
        CoreErrorKind::NewerFormat { thread, .. } => {
            ("other", NEWER_FORMAT.to_owned(), Some(thread))
        }
        CoreErrorKind::BrokenChain { code, thread, .. } => {
            let thread = id::key(&id::printable_id(&thread));
            ("corrupt", code.to_owned(), Some(thread))
        }
        CoreErrorKind::Corrupt(_) | CoreErrorKind::StateNotLoaded => {
            ("corrupt", CONTRADICTION.to_owned(), None)
        }
    }
}

/// Returns the JSON object of what a program may decide by.
fn write_details(error: &CoreErrorKind) -> String {
    let mut details = String::new();
    let mut writer = ObjectWriter::new(&mut details);
    match error {
        CoreErrorKind::Invalid {
            field,
            value,
            problem,
            nearest,
        } => {
            writer.add("field", field).add("value", value);
            writer.add("problem", problem);
            writer.add_present("nearest", nearest);
        }
        CoreErrorKind::NotFound { name, nearest, .. } => {
            writer.add("name", name).add_present("nearest", nearest);
        }
        CoreErrorKind::Busy { holder, expiry, .. } => {
            writer.add("holder", holder).add("expiry", expiry);
        }
        CoreErrorKind::Continued { next, .. } => {
            writer.add("next", next);
        }
        CoreErrorKind::Refused { status, .. } => {
            writer.add("status", status);
        }
        CoreErrorKind::Fenced { expected, actual } => {
            writer.add("expected", &expected.to_string());
            writer.add("actual", &actual.to_string());
        }
        CoreErrorKind::Conflict {
            expected, actual, ..
        } => {
            writer.add("expected", expected).add("actual", actual);
        }
        CoreErrorKind::Exceeded(cause) => add_cause(&mut writer, cause),
        CoreErrorKind::Exists(_)
        | CoreErrorKind::NewerFormat { .. }
        | CoreErrorKind::BrokenChain { .. }
        | CoreErrorKind::Corrupt(_)
        | CoreErrorKind::StateNotLoaded => {}
    }
    writer.finish();
    details
}

/// Adds the fields of a cause that the record of its error does not have.
fn add_cause(writer: &mut ObjectWriter<'_>, cause: &StatusCause) {
    writer.add("reason", &cause.reason);
    writer.add_present("value", &cause.value);
    writer.add_present("maximum", &cause.maximum);
    writer.add_present("retry", &cause.retry_millis());
    if let Some(detail) = &cause.detail {
        writer.add_present("failure", &detail.failure);
        writer.add_present("account", &detail.account);
    }
}
