//! Errors of the service, as the contract names them.

use super::instant;
use super::thread::cause;
use crate::component::threadkeep::threads::types;
use crate::ports::{LibraryError, StorageError};
use crate::service::Error;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::id;

/// Returns the error of a function that this version has not built.
#[inline(never)]
pub fn not_built_error(name: &str) -> types::Error {
    types::Error::Other(types::Failure {
        code: "not-built".to_owned(),
        message: format!("{name} is not built in this version of the component"),
    })
}

/// Converts an error of a call that names this thread, if it names one.
#[inline(never)]
pub fn error(error: Error, thread: Option<&str>) -> types::Error {
    match error {
        Error::Core(error) => core_error(error, thread),
        Error::Deleted(thread) => types::Error::Deleted(types::Tombstone { thread, time: None }),
        Error::Storage(error) => storage_failure(error, thread),
        Error::BadAnswer(message) => types::Error::Other(types::Failure {
            code: "bad-answer".to_owned(),
            message,
        }),
        Error::Library(error) => match error {
            LibraryError::Invalid {
                field,
                value,
                problem,
                nearest,
            } => types::Error::Invalid(types::Invalid {
                field,
                value,
                problem,
                nearest,
            }),
            LibraryError::Unavailable(code, message) => {
                types::Error::Unavailable(types::Failure { code, message })
            }
            LibraryError::Other(code, message) => {
                types::Error::Other(types::Failure { code, message })
            }
        },
    }
}

fn corrupt(code: String, message: String, thread: Option<&str>) -> types::Error {
    let thread = thread.map(|name| id::key(&id::printable_id(name)));
    types::Error::Corrupt(types::Damage {
        code,
        thread,
        message,
    })
}

fn storage_failure(error: StorageError, thread: Option<&str>) -> types::Error {
    match error {
        StorageError::Unavailable(code, message) => {
            types::Error::Unavailable(types::Failure { code, message })
        }
        StorageError::OutcomeUnknown(code, message) => {
            types::Error::Unknown(types::Failure { code, message })
        }
        StorageError::QuotaExceeded(code, message) => {
            types::Error::Full(types::Failure { code, message })
        }
        StorageError::Corrupt(code, message) => corrupt(code, message, thread),
        StorageError::TooLarge(code, message) | StorageError::Other(code, message) => {
            types::Error::Other(types::Failure { code, message })
        }
    }
}

fn core_error(error: CoreError, thread: Option<&str>) -> types::Error {
    match error {
        CoreError::Invalid {
            field,
            value,
            problem,
            nearest,
        } => types::Error::Invalid(types::Invalid {
            field,
            value,
            problem,
            nearest,
        }),
        CoreError::NotFound {
            kind,
            name,
            nearest,
        } => types::Error::NotFound(types::Missing {
            kind: kind.to_owned(),
            name,
            nearest,
        }),
        CoreError::Exists(thread) => types::Error::Exists(types::Taken { thread }),
        CoreError::Busy {
            thread,
            holder,
            expiry,
        } => types::Error::Busy(types::Lease {
            thread,
            holder,
            expiry: instant(expiry),
        }),
        CoreError::Continued { thread, next } => {
            types::Error::Continued(types::Succession { thread, next })
        }
        CoreError::Refused {
            thread,
            status,
            advice,
        } => types::Error::Refused(types::Refusal {
            thread,
            status,
            advice,
        }),
        CoreError::Fenced { expected, actual } => types::Error::Fenced(types::Mismatch {
            field: "token".to_owned(),
            expected: expected.to_string(),
            actual: actual.to_string(),
        }),
        CoreError::Conflict {
            field,
            expected,
            actual,
        } => types::Error::Conflict(types::Mismatch {
            field: field.to_owned(),
            expected,
            actual,
        }),
        CoreError::Exceeded(reason) => types::Error::Exceeded(cause(&reason, None)),
        error @ CoreError::NewerFormat { .. } => types::Error::Other(types::Failure {
            code: "newer-format".to_owned(),
            message: error.to_string(),
        }),
        CoreError::BrokenChain {
            code, ref thread, ..
        } => corrupt(code.to_owned(), error.to_string(), Some(thread)),
        CoreError::StateNotLoaded => corrupt("contradiction".to_owned(), error.to_string(), thread),
        CoreError::Corrupt(message) => corrupt("contradiction".to_owned(), message, thread),
    }
}
