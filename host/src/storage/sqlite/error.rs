//! Maps the errors of SQLite to those of the store.

use rusqlite::types::Type;
use rusqlite::{Error, ErrorCode};

use super::super::StorageError;
use super::super::check::other_error;

/// A value in the file that this program cannot have written. Names the record.
#[derive(Debug, thiserror::Error)]
#[error("the {what} {problem}")]
pub(super) struct UnreadableValue {
    what: String,
    problem: String,
}

/// Most characters of a name that an error repeats.
const SHOWN_CHARS_MAX: usize = 200;

impl UnreadableValue {
    /// Makes the error. `what` may contain anything from the file: it is shortened, and characters
    /// that a terminal could interpret are escaped.
    pub(super) fn error(column: usize, what: &str, problem: &str) -> Error {
        let shown = what.chars().take(SHOWN_CHARS_MAX);
        let what = shown.flat_map(char::escape_debug).collect();
        let problem = problem.to_owned();
        let source = Box::new(Self { what, problem });
        Error::FromSqlConversionFailure(column, Type::Text, source)
    }
}

/// The error before COMMIT, or of a read: nothing was written.
pub(super) fn error_before_commit(error: &Error) -> StorageError {
    let message = error.to_string();
    match error {
        Error::SqliteFailure(failure, _) => from_code(failure.code, failure.extended_code, message),
        Error::FromSqlConversionFailure(_, _, source) if source.is::<UnreadableValue>() => {
            let message = source.to_string();
            StorageError::Corrupt { message }
        }
        // The contents of the file are not as this program writes them: another type, no UTF-8, a
        // negative version.
        Error::InvalidColumnType(..)
        | Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::Utf8Error(..) => StorageError::Corrupt { message },
        _ => other_error("sqlite", message),
    }
}

/// The error of COMMIT itself. When the log could not be written or synchronised, a crash may still
/// restore the commit, so the outcome is unknown.
pub(super) fn error_of_commit(error: &Error) -> StorageError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::ConstraintViolation,
        ) => error_before_commit(error),
        Some(_) | None => StorageError::OutcomeUnknown {
            message: error.to_string(),
        },
    }
}

fn from_code(code: ErrorCode, extended: i32, message: String) -> StorageError {
    if extended == rusqlite::ffi::SQLITE_IOERR_CORRUPTFS {
        return StorageError::Corrupt { message };
    }
    // The file that connections share is made by reads, too.
    let is_full = code == ErrorCode::DiskFull || extended == rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
    if is_full {
        // The operator's disk, not the tenant's quota.
        let message = format!("the disk is full: free space on it ({message})");
        return StorageError::Unavailable { message };
    }
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed => {
            // Our writers queue at the lock file: only another program holds SQLite's own lock for
            // so long.
            let message = format!(
                "{message}: another process keeps the database file of the store \
                 (.ai/threads/registry.db of a project) locked: end that process, or try again"
            );
            StorageError::Unavailable { message }
        }
        // The process bounds what SQLite may have, or the machine is short of it.
        ErrorCode::OutOfMemory => other_error(
            "out-of-memory",
            "SQLite has no memory left: a row of the database file may be larger than any that is \
             written here (`threadkeep doctor` names it), or the machine is short of memory",
        ),
        // SQLite names the path by which it was asked, which says nothing to a person.
        ErrorCode::CannotOpen => StorageError::Unavailable {
            message: "SQLite cannot open the database file of the store: check that this user may \
                      read and write it and its directory (`threadkeep doctor` names their modes)"
                .to_owned(),
        },
        // Another connection holds the lock, or the machine is short of a resource: the same call
        // may succeed later.
        ErrorCode::DatabaseLocked
        | ErrorCode::OperationInterrupted
        | ErrorCode::SystemIoFailure => StorageError::Unavailable { message },
        // Everything that this program writes meets the constraints of the schema.
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation => {
            StorageError::Corrupt { message }
        }
        // Longer than any value that this program writes.
        ErrorCode::TooBig => StorageError::Corrupt { message },
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => other_error("read-only", message),
        _ => other_error("sqlite", message),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn kind(error: &StorageError) -> &'static str {
        match error {
            StorageError::Unavailable { .. } => "unavailable",
            StorageError::OutcomeUnknown { .. } => "outcome-unknown",
            StorageError::QuotaExceeded { .. } => "quota-exceeded",
            StorageError::TooLarge { .. } => "too-large",
            StorageError::Corrupt { .. } => "corrupt",
            StorageError::Other { code, .. } => code,
        }
    }

    #[test]
    fn each_code_has_its_meaning_before_and_at_commit() {
        let cases = [
            (ffi::SQLITE_BUSY, "unavailable", "unavailable"),
            (ffi::SQLITE_LOCKED, "unavailable", "unavailable"),
            (ffi::SQLITE_FULL, "unavailable", "unavailable"),
            (ffi::SQLITE_NOMEM, "out-of-memory", "outcome-unknown"),
            (ffi::SQLITE_IOERR_WRITE, "unavailable", "outcome-unknown"),
            (ffi::SQLITE_IOERR_FSYNC, "unavailable", "outcome-unknown"),
            (ffi::SQLITE_IOERR_READ, "unavailable", "outcome-unknown"),
            (ffi::SQLITE_IOERR_CORRUPTFS, "corrupt", "outcome-unknown"),
            (ffi::SQLITE_CANTOPEN, "unavailable", "outcome-unknown"),
            (ffi::SQLITE_READONLY, "read-only", "read-only"),
            (ffi::SQLITE_READONLY_DBMOVED, "read-only", "read-only"),
            (ffi::SQLITE_CORRUPT, "corrupt", "outcome-unknown"),
            (ffi::SQLITE_NOTADB, "corrupt", "outcome-unknown"),
            (ffi::SQLITE_TOOBIG, "corrupt", "outcome-unknown"),
            (ffi::SQLITE_CONSTRAINT_CHECK, "corrupt", "corrupt"),
            (ffi::SQLITE_ERROR, "sqlite", "outcome-unknown"),
        ];
        for (code, before, at) in cases {
            let error = Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(
                kind(&error_before_commit(&error)),
                before,
                "code {code} before COMMIT"
            );
            assert_eq!(kind(&error_of_commit(&error)), at, "code {code} of COMMIT");
        }
        let path = "unable to open database file: /proc/self/fd/3/x".to_owned();
        let error = Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(path));
        assert!(!error_before_commit(&error).to_string().contains("/proc"));
    }

    /// Symptom: a full disk was reported as "try again". Fix: the error says what to do first.
    #[test]
    fn a_full_disk_says_that_space_must_be_freed() {
        let full = Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None);
        for error in [error_before_commit(&full), error_of_commit(&full)] {
            assert!(error.to_string().contains("free space"), "{error}");
        }
    }

    #[test]
    fn what_we_would_never_write_is_corrupt() {
        let error = Error::InvalidColumnType(1, "value".into(), rusqlite::types::Type::Blob);
        assert_eq!(kind(&error_before_commit(&error)), "corrupt");
        assert_eq!(
            kind(&error_before_commit(&Error::IntegralValueOutOfRange(1, -1))),
            "corrupt"
        );
    }
}
