//! Every error of the service on its way: the contract's record, and the enum that the host makes
//! of it.

use threadkeep::wit::{self, ErrorRecord as HostRecord};
use threadkeep_component::error_record::ErrorRecord;
use threadkeep_component::ports::{LibraryError, StorageError};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::{CHAIN_CYCLE, ErrorKind as CoreErrorKind};
use threadkeep_core::thread::{CauseDetail, StatusCause};
use threadkeep_core::time::UnixTime;

/// The thread that each call of the table names.
const CALLED: &str = "Chat-1";

/// An error, and what arrives of it.
struct ErrorCase {
    error: Error,
    /// Kind, code and thread of the record.
    record: (&'static str, &'static str, &'static str),
    details: &'static str,
    /// Message and advice.
    sentences: (&'static str, &'static str),
    /// The fields of the host's payload beside the sentences.
    arrives: &'static str,
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// A failure of storage or of the library: code and message.
fn make_failure() -> (String, String) {
    (text("disk"), text("the disk is away"))
}

fn make_exceeded() -> CoreErrorKind {
    CoreErrorKind::Exceeded(StatusCause {
        value: Some(7),
        maximum: Some(5),
        detail: Some(Box::new(CauseDetail {
            failure: Some(text("overloaded")),
            account: Some(text("root-1")),
        })),
        ..StatusCause::new("error", "spend_exceeded", "too much: raise the cap")
    })
}

/// Refusals of a request.
fn request_cases() -> Vec<ErrorCase> {
    let invalid = || CoreErrorKind::Invalid {
        field: text("limits.turns"),
        value: text("a\"b"),
        problem: text("is no count"),
        nearest: Some(text("5")),
    };
    vec![
        ErrorCase {
            error: invalid().into(),
            record: ("invalid", "", "chat-1"),
            details: concat!(
                r#"{"field":"limits.turns","value":"a\"b","#,
                r#""problem":"is no count","nearest":"5"}"#
            ),
            sentences: (r#"limits.turns "a\"b" is no count"#, "did you mean 5?"),
            arrives: "limits.turns a\"b is no count Some(\"5\")",
        },
        ErrorCase {
            error: LibraryError::Invalid {
                field: text("work.md:3"),
                value: String::new(),
                problem: text("is no YAML"),
                nearest: None,
            }
            .into(),
            record: ("invalid", "", "chat-1"),
            details: r#"{"field":"work.md:3","value":"","problem":"is no YAML"}"#,
            sentences: ("work.md:3 is no YAML", ""),
            arrives: "work.md:3  is no YAML None",
        },
        ErrorCase {
            error: CoreErrorKind::NotFound {
                kind: "directive",
                name: text("wrok"),
                nearest: Some(text("work")),
            }
            .into(),
            record: ("not-found", "directive", "chat-1"),
            details: r#"{"name":"wrok","nearest":"work"}"#,
            sentences: (r#"there is no directive "wrok""#, "did you mean work?"),
            arrives: "directive wrok Some(\"work\")",
        },
        ErrorCase {
            error: make_exceeded().into(),
            record: ("exceeded", "spend_exceeded", "chat-1"),
            details: concat!(
                r#"{"reason":"error","value":7,"maximum":5,"retry":7,"#,
                r#""failure":"overloaded","account":"root-1"}"#
            ),
            sentences: ("too much: raise the cap", ""),
            arrives: "error spend_exceeded Some(7) Some(5) Some(7) \
                      Some(\"overloaded\") Some(\"root-1\")",
        },
    ]
}

/// Refusals that name a thread.
fn thread_cases() -> Vec<ErrorCase> {
    vec![
        ErrorCase {
            error: ErrorKind::Deleted(text("old-1")).into(),
            record: ("deleted", "", "old-1"),
            details: "{}",
            sentences: ("thread old-1 was deleted", ""),
            arrives: "old-1 None",
        },
        ErrorCase {
            error: CoreErrorKind::Exists(text("One")).into(),
            record: ("exists", "", "One"),
            details: "{}",
            sentences: (
                "a thread One exists",
                "ids are the same without regard to case: choose another",
            ),
            arrives: "One",
        },
        ErrorCase {
            error: CoreErrorKind::Busy {
                thread: text("one"),
                holder: text("p/1"),
                expiry: UnixTime {
                    seconds: 1_000_000_000,
                    nanos: 5,
                },
            }
            .into(),
            record: ("busy", "", "one"),
            details: r#"{"holder":"p/1","expiry":{"seconds":1000000000,"nanos":5}}"#,
            sentences: (
                "one is held by p/1 until 2001-09-09T01:46:40Z",
                "try again then, or claim it if its holder has died",
            ),
            arrives: "one p/1 1000000000 5",
        },
        ErrorCase {
            error: CoreErrorKind::Continued {
                thread: text("one"),
                next: text("two"),
            }
            .into(),
            record: ("continued", "", "one"),
            details: r#"{"next":"two"}"#,
            sentences: ("one was continued by two", "use two"),
            arrives: "one two",
        },
        ErrorCase {
            error: CoreErrorKind::Refused {
                thread: text("one"),
                status: text("killed"),
                advice: text("resume it"),
            }
            .into(),
            record: ("refused", "", "one"),
            details: r#"{"status":"killed"}"#,
            sentences: ("one is killed", "resume it"),
            arrives: "one killed",
        },
    ]
}

/// Errors that name the thread of a record.
fn record_cases() -> Vec<ErrorCase> {
    vec![
        ErrorCase {
            error: CoreErrorKind::BrokenChain {
                code: CHAIN_CYCLE,
                thread: text("Two"),
                problem: text("leads back to itself"),
            }
            .into(),
            record: ("corrupt", "chain_cycle", "two"),
            details: "{}",
            sentences: (
                "the chain is broken at Two: it leads back to itself",
                "keep a copy of the store, and put the thread back from an older one",
            ),
            arrives: "chain_cycle Some(\"two\")",
        },
        ErrorCase {
            error: CoreErrorKind::NewerFormat {
                thread: text("one"),
                record: "head",
                format: 9,
            }
            .into(),
            record: ("other", "newer-format", "one"),
            details: "{}",
            sentences: (
                "the head of one has the format 9, which a newer program wrote: update this one \
                 to change it",
                "use the program that wrote it, or a newer one",
            ),
            arrives: "newer-format",
        },
    ]
}

/// Preconditions that do not hold.
fn mismatch_cases() -> Vec<ErrorCase> {
    let conflict = |field, advice, message| ErrorCase {
        error: CoreErrorKind::Conflict {
            field,
            expected: text("4"),
            actual: text("6"),
        }
        .into(),
        record: ("conflict", field, "chat-1"),
        details: r#"{"expected":"4","actual":"6"}"#,
        sentences: (message, advice),
        arrives: "4 6",
    };
    let (read, repeat) = (
        "read how the thread stands, and go on from there",
        "repeat it as it was; for another call, take another key",
    );
    vec![
        ErrorCase {
            error: CoreErrorKind::Fenced {
                expected: 1,
                actual: 2,
            }
            .into(),
            record: ("fenced", "token", "chat-1"),
            details: r#"{"expected":"1","actual":"2"}"#,
            sentences: (
                "the run was taken over: token 1 was replaced by 2",
                "submit no more for this run: read how the thread stands",
            ),
            arrives: "1 2",
        },
        conflict("version", read, "version is 6, not 4"),
        ErrorCase {
            error: CoreErrorKind::Conflict {
                field: "version",
                expected: text("4"),
                actual: text("none"),
            }
            .into(),
            record: ("conflict", "version", "chat-1"),
            details: r#"{"expected":"4","actual":"none"}"#,
            sentences: (
                "no step of this thread waits for a result: version 4 was answered before, or was \
                 never a step of it",
                read,
            ),
            arrives: "4 none",
        },
        conflict(
            "bill",
            repeat,
            "another bill than this was recorded for the call before",
        ),
        conflict(
            "draft",
            repeat,
            "the key was used before, with another draft",
        ),
    ]
}

/// Failures of the host's imports and of stored data.
fn failure_cases() -> Vec<ErrorCase> {
    let (code, message) = make_failure();
    let of_storage = |make: fn(String, String) -> StorageError, kind, advice, arrives| ErrorCase {
        error: make(code.clone(), message.clone()).into(),
        record: (kind, "disk", "chat-1"),
        details: "{}",
        sentences: ("the disk is away", advice),
        arrives,
    };
    let of_library = |make: fn(String, String) -> LibraryError, kind, advice| ErrorCase {
        error: make(code.clone(), message.clone()).into(),
        record: (kind, "disk", "chat-1"),
        details: "{}",
        sentences: ("the disk is away", advice),
        arrives: "disk",
    };
    let (again, once_more, room, copy) = (
        "nothing was written: try again",
        "repeat the same call: it finds out and does nothing twice",
        "free space or raise the quota",
        "keep a copy of the store, and put the thread back from an older one",
    );
    vec![
        of_storage(StorageError::Unavailable, "unavailable", again, "disk"),
        of_storage(StorageError::OutcomeUnknown, "unknown", once_more, "disk"),
        of_storage(StorageError::QuotaExceeded, "full", room, "disk"),
        of_storage(StorageError::TooLarge, "other", "", "disk"),
        of_storage(
            StorageError::Corrupt,
            "corrupt",
            copy,
            "disk Some(\"chat-1\")",
        ),
        of_storage(StorageError::Other, "other", "", "disk"),
        of_library(LibraryError::Unavailable, "unavailable", again),
        of_library(LibraryError::Other, "other", ""),
        ErrorCase {
            error: CoreErrorKind::Corrupt(text("the head of chat-1 is missing")).into(),
            record: ("corrupt", "contradiction", "chat-1"),
            details: "{}",
            sentences: ("the head of chat-1 is missing", copy),
            arrives: "contradiction Some(\"chat-1\")",
        },
        ErrorCase {
            error: ErrorKind::BadAnswer(text("too few documents")).into(),
            record: ("other", "bad-answer", "chat-1"),
            details: "{}",
            sentences: (
                "too few documents",
                "this is a fault of the host or of its files: mend it there",
            ),
            arrives: "bad-answer",
        },
    ]
}

/// The record as the binding gives it to the host.
fn cross(record: &ErrorRecord) -> HostRecord {
    HostRecord {
        kind: record.kind.to_owned(),
        code: record.code.clone(),
        message: record.message.clone(),
        advice: record.advice.clone(),
        thread: record.thread.clone(),
        details: record.details.clone(),
    }
}

/// The fields of a payload beside its sentences.
fn payload(error: &wit::Error) -> String {
    match error {
        wit::Error::Invalid(e) => {
            format!("{} {} {} {:?}", e.field, e.value, e.problem, e.nearest)
        }
        wit::Error::NotFound(e) => format!("{} {} {:?}", e.kind, e.name, e.nearest),
        wit::Error::Deleted(e) => format!("{} {:?}", e.thread, e.time),
        wit::Error::Exists(e) => e.thread.clone(),
        wit::Error::Busy(e) => {
            let wit::Lease {
                thread,
                holder,
                expiry,
            } = &e.lease;
            format!("{thread} {holder} {} {}", expiry.seconds, expiry.nanos)
        }
        wit::Error::Continued(e) => format!("{} {}", e.thread, e.next),
        wit::Error::Refused(e) => format!("{} {}", e.thread, e.status),
        wit::Error::Fenced(e) | wit::Error::Conflict(e) => format!("{} {}", e.expected, e.actual),
        wit::Error::Exceeded(e) => format!(
            "{} {} {:?} {:?} {:?} {:?} {:?}",
            e.reason, e.code, e.value, e.maximum, e.retry, e.failure, e.account
        ),
        wit::Error::Corrupt(e) => format!("{} {:?}", e.code, e.thread),
        wit::Error::Unavailable(e)
        | wit::Error::Unknown(e)
        | wit::Error::Full(e)
        | wit::Error::Other(e) => e.code.clone(),
        other => panic!("no case of the table: {other:?}"),
    }
}

#[test]
fn every_error_arrives_in_the_host_with_its_details_and_sentences() {
    let cases = [
        request_cases(),
        thread_cases(),
        record_cases(),
        mismatch_cases(),
        failure_cases(),
    ];
    let mut kinds = std::collections::BTreeSet::new();
    for case in cases.into_iter().flatten() {
        let name = format!("{:?}", case.error);
        let record = ErrorRecord::new(case.error, Some(CALLED));
        let (kind, code, thread) = case.record;
        assert_eq!((record.kind, &*record.code), (kind, code), "{name}");
        assert_eq!(record.thread.as_deref(), Some(thread), "{name}");
        assert_eq!(record.details, case.details, "{name}");
        let sentences = (&*record.message, &*record.advice);
        assert_eq!(sentences, case.sentences, "{name}");
        let error = wit::Error::from(cross(&record));
        assert_eq!(error.kind(), kind, "{name}");
        assert_eq!(payload(&error), case.arrives, "{name}");
        assert_eq!((error.message(), error.advice()), case.sentences, "{name}");
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), 15, "{kinds:?}");
}

#[test]
fn an_error_of_a_call_that_names_no_thread_names_none() {
    let corrupt = || Error::from(CoreErrorKind::Corrupt(text("a row is damaged")));
    assert_eq!(ErrorRecord::new(corrupt(), None).thread, None);
    // A name that is no id is shown, and never obeyed by a terminal.
    let record = ErrorRecord::new(corrupt(), Some("A\u{1b}b"));
    assert_eq!(record.thread.as_deref(), Some("a\u{fffd}b"));
    assert_eq!(ErrorRecord::not_built("runner.run").code, "not-built");
}
