//! Errors of the service, as the contract names them.

use crate::component::threadkeep::threads::types;
use crate::error_record::ErrorRecord;
use crate::service::Error;

/// Returns the error of a function that this version has not built.
#[inline(never)]
pub fn not_built_error(name: &str) -> types::Error {
    record(ErrorRecord::not_built(name))
}

/// Converts an error of a call that names this thread, if it names one.
#[inline(never)]
pub fn error(error: Error, thread: Option<&str>) -> types::Error {
    record(ErrorRecord::new(error, thread))
}

fn record(record: ErrorRecord) -> types::Error {
    let ErrorRecord {
        kind,
        code,
        message,
        advice,
        thread,
        details,
    } = record;
    types::Error {
        kind: kind.to_owned(),
        code,
        message,
        advice,
        thread,
        details,
    }
}
