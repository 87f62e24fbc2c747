//! Errors of calls of the component: a refusal, with what commands decide by, or the fault of a
//! host that got no answer.

use super::{RunLease, UnixTime};
use crate::exit::CommandFault;
use serde_json::Value;
use std::fmt;

/// The reason why a call has no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum CallError {
    /// The component refused.
    Refused(CallRefusal),
    /// The host got no answer. Its fault says what that means.
    Failed(CommandFault),
}

/// `types.error`: a refusal of the component.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRefusal {
    /// Its kind.
    pub kind: RefusalKind,
    /// A stable code beside the kind; empty where the kind says all.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
    /// The remedy, for a person; empty where it is not known.
    pub advice: String,
    /// The thread that it is about.
    pub thread: Option<String>,
    /// JSON object: what a program may decide by.
    pub details: Value,
}

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// An argument or a file is not valid.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// The thread was deleted.
    Deleted,
    /// The id is taken.
    Exists,
    /// Another holder has the thread.
    Busy,
    /// The thread was continued.
    Continued,
    /// The status does not allow it.
    Refused,
    /// The caller does not hold the thread.
    Fenced,
    /// A precondition does not hold.
    Conflict,
    /// A cap or the budget does not allow it.
    Exceeded,
    /// The store cannot be reached.
    Unavailable,
    /// Nobody knows whether it was written.
    Unknown,
    /// The store is full.
    Full,
    /// Stored data cannot be read.
    Corrupt,
    /// Any other failure, also one of a kind that this program does not know.
    Other,
}

impl RefusalKind {
    /// Each with its name in the contract.
    const NAMES: [(Self, &'static str); 15] = [
        (Self::Invalid, "invalid"),
        (Self::NotFound, "not-found"),
        (Self::Deleted, "deleted"),
        (Self::Exists, "exists"),
        (Self::Busy, "busy"),
        (Self::Continued, "continued"),
        (Self::Refused, "refused"),
        (Self::Fenced, "fenced"),
        (Self::Conflict, "conflict"),
        (Self::Exceeded, "exceeded"),
        (Self::Unavailable, "unavailable"),
        (Self::Unknown, "unknown"),
        (Self::Full, "full"),
        (Self::Corrupt, "corrupt"),
        (Self::Other, "other"),
    ];

    /// Returns the kind of this name, or [`RefusalKind::Other`].
    pub fn from_name(name: &str) -> Self {
        let known = Self::NAMES.iter().find(|(_, known)| *known == name);
        known.map_or(Self::Other, |(kind, _)| *kind)
    }

    /// Returns its name in the contract.
    pub fn as_str(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(kind, _)| *kind == self);
        known.map_or("other", |(_, name)| name)
    }
}

impl CallRefusal {
    /// Reads the record of the contract. The code of an unknown kind is the kind, if it has none.
    pub fn from_record(
        (kind, code): (&str, String),
        (message, advice): (String, String),
        thread: Option<String>,
        details: &str,
    ) -> Self {
        let known = RefusalKind::from_name(kind);
        let code = match (known, code.as_str()) {
            (RefusalKind::Other, "") => kind.to_owned(),
            _ => code,
        };
        Self {
            kind: known,
            code,
            message,
            advice,
            thread,
            details: serde_json::from_str(details).unwrap_or_default(),
        }
    }

    /// Returns a detail that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.details.get(name)?.as_str()
    }

    /// Returns a detail that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.details.get(name)?.as_u64()
    }

    /// Returns the lease of the holder that a busy thread has.
    pub fn lease(&self) -> Option<RunLease> {
        if self.kind != RefusalKind::Busy {
            return None;
        }
        let expiry = self.details.get("expiry").and_then(|expiry| {
            Some(UnixTime {
                seconds: expiry.get("seconds")?.as_i64()?,
                nanos: u32::try_from(expiry.get("nanos")?.as_u64()?).ok()?,
            })
        });
        Some(RunLease {
            thread: self.thread.clone()?,
            holder: self.text("holder")?.to_owned(),
            expiry: expiry.unwrap_or_default(),
        })
    }
}

impl CallError {
    /// Returns the refusal, if it is one.
    pub fn refusal(&self) -> Option<&CallRefusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Failed(_) => None,
        }
    }

    /// Returns true for a refusal of this kind.
    pub fn is_refused_as(&self, kind: RefusalKind) -> bool {
        self.refusal().is_some_and(|refusal| refusal.kind == kind)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused(refusal) => &refusal.message,
            Self::Failed(fault) => &fault.message,
        })
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(kind: &str, code: &str, details: &str) -> CallRefusal {
        let sentences = ("a sentence".to_owned(), "a remedy".to_owned());
        CallRefusal::from_record(
            (kind, code.to_owned()),
            sentences,
            Some("t".to_owned()),
            details,
        )
    }

    #[test]
    fn a_refusal_of_an_unknown_kind_keeps_its_code() {
        for (kind, code, expected) in [
            ("paused", "", (RefusalKind::Other, "paused")),
            (
                "paused",
                "until-monday",
                (RefusalKind::Other, "until-monday"),
            ),
            (
                "other",
                "newer-format",
                (RefusalKind::Other, "newer-format"),
            ),
            ("conflict", "version", (RefusalKind::Conflict, "version")),
        ] {
            let read = refusal(kind, code, "{}");
            assert_eq!((read.kind, read.code.as_str()), expected, "{kind} {code}");
        }
        for (kind, name) in RefusalKind::NAMES {
            assert_eq!(RefusalKind::from_name(name), kind);
            assert_eq!(kind.as_str(), name);
        }
    }

    #[test]
    fn details_are_read_as_far_as_they_are_there() {
        let busy = refusal(
            "busy",
            "",
            r#"{"holder":"n/1","expiry":{"seconds":5,"nanos":6}}"#,
        );
        let lease = busy.lease().unwrap();
        assert_eq!((&*lease.thread, &*lease.holder), ("t", "n/1"));
        assert_eq!((lease.expiry.seconds, lease.expiry.nanos), (5, 6));
        assert_eq!(refusal("busy", "", "no JSON").lease(), None);
        assert_eq!(refusal("exists", "", r#"{"holder":"n/1"}"#).lease(), None);
        let full = refusal("exceeded", "turns_exceeded", r#"{"maximum":3}"#);
        assert_eq!(
            (full.number("maximum"), full.text("maximum")),
            (Some(3), None)
        );
    }
}
