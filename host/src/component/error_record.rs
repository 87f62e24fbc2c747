//! Reads the record `error` of the contract: its kind and details become the host's enum. An error
//! of a kind that this host does not know, or with details that are not of its kind, is
//! [`Error::Other`] with the same sentences.

use crate::wit::{
    BusyThread, CallFailure, Cause, ContinuedThread, DeletedThread, Error, ErrorRecord, Instant,
    InvalidValue, Lease, MissingName, RefusedStatus, StoredDamage, TakenId, ValueMismatch,
};
use serde_json::Value;

impl From<ErrorRecord> for Error {
    fn from(record: ErrorRecord) -> Self {
        read_known(&record).unwrap_or_else(|| {
            let code = match record.code.as_str() {
                "" => record.kind,
                _ => record.code,
            };
            Self::Other(CallFailure {
                code,
                message: record.message,
                advice: record.advice,
            })
        })
    }
}

/// Returns the error of a known kind; `None` for another, or if its details are wrong.
fn read_known(record: &ErrorRecord) -> Option<Error> {
    let reader = DetailsReader {
        record,
        details: serde_json::from_str(&record.details).ok()?,
    };
    Some(match record.kind.as_str() {
        "invalid" => Error::Invalid(reader.invalid_value()?),
        "not-found" => Error::NotFound(reader.missing_name()?),
        "deleted" => Error::Deleted(reader.deleted_thread()?),
        "exists" => Error::Exists(reader.taken_id()?),
        "busy" => Error::Busy(reader.busy_thread()?),
        "continued" => Error::Continued(reader.continued_thread()?),
        "refused" => Error::Refused(reader.refused_status()?),
        "fenced" => Error::Fenced(reader.value_mismatch()?),
        "conflict" => Error::Conflict(reader.value_mismatch()?),
        "exceeded" => Error::Exceeded(reader.cause()?),
        "unavailable" => Error::Unavailable(reader.call_failure()),
        "unknown" => Error::Unknown(reader.call_failure()),
        "full" => Error::Full(reader.call_failure()),
        "corrupt" => Error::Corrupt(reader.stored_damage()),
        "other" => Error::Other(reader.call_failure()),
        _ => return None,
    })
}

/// A record with its details parsed. A function returns `None` where a field is missing or has
/// another type.
struct DetailsReader<'a> {
    record: &'a ErrorRecord,
    details: Value,
}

impl DetailsReader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.details.get(name)?.as_str().map(str::to_owned)
    }

    /// Reads a field that may be missing.
    fn optional<T>(&self, name: &str, read: impl Fn(&Value) -> Option<T>) -> Option<Option<T>> {
        match self.details.get(name) {
            None => Some(None),
            Some(value) => read(value).map(Some),
        }
    }

    fn optional_text(&self, name: &str) -> Option<Option<String>> {
        self.optional(name, |value| value.as_str().map(str::to_owned))
    }

    fn optional_number(&self, name: &str) -> Option<Option<u64>> {
        self.optional(name, Value::as_u64)
    }

    /// The thread that the error is about, for a kind that has one.
    fn thread(&self) -> Option<String> {
        self.record.thread.clone()
    }

    fn message(&self) -> String {
        self.record.message.clone()
    }

    fn advice(&self) -> String {
        self.record.advice.clone()
    }

    fn invalid_value(&self) -> Option<InvalidValue> {
        Some(InvalidValue {
            field: self.text("field")?,
            value: self.text("value")?,
            problem: self.text("problem")?,
            nearest: self.optional_text("nearest")?,
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn missing_name(&self) -> Option<MissingName> {
        Some(MissingName {
            kind: self.record.code.clone(),
            name: self.text("name")?,
            nearest: self.optional_text("nearest")?,
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn deleted_thread(&self) -> Option<DeletedThread> {
        Some(DeletedThread {
            thread: self.thread()?,
            time: self.optional("time", read_instant)?,
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn taken_id(&self) -> Option<TakenId> {
        Some(TakenId {
            thread: self.thread()?,
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn busy_thread(&self) -> Option<BusyThread> {
        Some(BusyThread {
            lease: Lease {
                thread: self.thread()?,
                holder: self.text("holder")?,
                expiry: read_instant(self.details.get("expiry")?)?,
            },
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn continued_thread(&self) -> Option<ContinuedThread> {
        Some(ContinuedThread {
            thread: self.thread()?,
            next: self.text("next")?,
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn refused_status(&self) -> Option<RefusedStatus> {
        Some(RefusedStatus {
            thread: self.thread()?,
            status: self.text("status")?,
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn value_mismatch(&self) -> Option<ValueMismatch> {
        Some(ValueMismatch {
            field: self.record.code.clone(),
            expected: self.text("expected")?,
            actual: self.text("actual")?,
            message: self.message(),
            advice: self.advice(),
        })
    }

    fn cause(&self) -> Option<Cause> {
        Some(Cause {
            reason: self.text("reason")?,
            code: self.record.code.clone(),
            message: self.message(),
            value: self.optional_number("value")?,
            maximum: self.optional_number("maximum")?,
            failure: self.optional_text("failure")?,
            retry: self.optional_number("retry")?,
            // Of a suspended thread alone.
            raise_above: None,
            account: self.optional_text("account")?,
        })
    }

    fn call_failure(&self) -> CallFailure {
        CallFailure {
            code: self.record.code.clone(),
            message: self.message(),
            advice: self.advice(),
        }
    }

    fn stored_damage(&self) -> StoredDamage {
        StoredDamage {
            code: self.record.code.clone(),
            thread: self.thread(),
            message: self.message(),
            advice: self.advice(),
        }
    }
}

fn read_instant(value: &Value) -> Option<Instant> {
    Some(Instant {
        seconds: value.get("seconds")?.as_i64()?,
        nanos: u32::try_from(value.get("nanos")?.as_u64()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: &str, code: &str, details: &str) -> ErrorRecord {
        ErrorRecord {
            kind: kind.to_owned(),
            code: code.to_owned(),
            message: "a sentence".to_owned(),
            advice: "a remedy".to_owned(),
            thread: None,
            details: details.to_owned(),
        }
    }

    #[test]
    fn unknown_kinds_and_bad_details_are_other_errors_with_the_same_sentences() {
        for (kind, code, details, expected) in [
            ("paused", "", "{}", "paused"),
            ("paused", "until-monday", "{}", "until-monday"),
            ("invalid", "", "{}", "invalid"),
            ("invalid", "", "no JSON", "invalid"),
            ("fenced", "token", r#"{"expected":1,"actual":2}"#, "token"),
            (
                "exceeded",
                "spend_exceeded",
                r#"{"reason":"limit","value":"5"}"#,
                "spend_exceeded",
            ),
            // These name no thread.
            ("exists", "", "{}", "exists"),
            ("continued", "", r#"{"next":"b"}"#, "continued"),
        ] {
            let error = Error::from(record(kind, code, details));
            assert_eq!(error.message(), "a sentence", "{kind} {details}");
            assert_eq!(error.advice(), "a remedy", "{kind} {details}");
            let Error::Other(failure) = error else {
                panic!("{kind} {details}: {error:?}");
            };
            assert_eq!(failure.code, expected, "{kind} {details}");
        }
    }

    #[test]
    fn fields_that_this_host_does_not_know_are_passed_over() {
        let details = r#"{"name":"a","nearest":"b","since":{"version":7}}"#;
        let error = Error::from(record("not-found", "directive", details));
        let Error::NotFound(missing) = error else {
            panic!("{error:?}");
        };
        assert_eq!(
            (&*missing.kind, &*missing.name, missing.nearest.as_deref()),
            ("directive", "a", Some("b"))
        );
    }
}
