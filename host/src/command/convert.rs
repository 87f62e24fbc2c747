//! Conversions between the bindings of the component and the types of commands, and between the
//! errors of both.

use super::fault;
use serde_json::{Value, json};
use threadkeep::error::CallError;
use threadkeep::wit::{self as types, history, ledger, registry, runner, transcript};
use threadkeep_cli::contract::{self, CallRefusal, RefusalKind};

threadkeep_cli::convert_records!();

/// Converts the error of a call.
pub fn to_contract(error: &CallError) -> contract::CallError {
    match error {
        CallError::Refused(refused) => contract::CallError::Refused(refusal(refused)),
        failed => contract::CallError::Failed(fault::from_failed_call(failed)),
    }
}

/// Converts a refusal: the record of the contract that it was read from.
fn refusal(error: &types::Error) -> CallRefusal {
    let (code, thread, details) = refusal_parts(error);
    CallRefusal {
        kind: RefusalKind::from_name(error.kind()),
        code: code.to_owned(),
        message: error.message().to_owned(),
        advice: error.advice().to_owned(),
        thread: thread.map(str::to_owned),
        details,
    }
}

/// Returns the code, the thread and the details of a refusal.
fn refusal_parts(error: &types::Error) -> (&str, Option<&str>, Value) {
    use types::Error;
    match error {
        Error::Invalid(wrong) => {
            let details = json!({
                "field": wrong.field,
                "value": wrong.value,
                "problem": wrong.problem,
                "nearest": wrong.nearest,
            });
            ("", None, details)
        }
        Error::NotFound(missing) => {
            let details = json!({"name": missing.name, "nearest": missing.nearest});
            (&missing.kind, None, details)
        }
        Error::Deleted(deleted) => ("", Some(&deleted.thread), json!({})),
        Error::Exists(taken) => ("", Some(&taken.thread), json!({})),
        Error::Busy(busy) => {
            let expiry = busy.lease.expiry;
            let details = json!({
                "holder": busy.lease.holder,
                "expiry": {"seconds": expiry.seconds, "nanos": expiry.nanos},
            });
            ("", Some(&busy.lease.thread), details)
        }
        Error::Continued(next) => ("", Some(&next.thread), json!({"next": next.next})),
        Error::Refused(refused) => {
            let details = json!({"status": refused.status});
            ("", Some(&refused.thread), details)
        }
        Error::Fenced(differs) | Error::Conflict(differs) => {
            let details = json!({"expected": differs.expected, "actual": differs.actual});
            (&differs.field, None, details)
        }
        Error::Exceeded(cause) => {
            let details = json!({
                "reason": cause.reason,
                "value": cause.value,
                "maximum": cause.maximum,
                "account": cause.account,
            });
            (&cause.code, None, details)
        }
        Error::Corrupt(damage) => (&damage.code, damage.thread.as_deref(), json!({})),
        Error::Unavailable(why) | Error::Unknown(why) | Error::Full(why) | Error::Other(why) => {
            (&why.code, None, json!({}))
        }
        // A kind that a later version of the library knows.
        _ => ("", None, json!({})),
    }
}
