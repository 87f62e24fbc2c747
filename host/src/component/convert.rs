//! Conversions between WIT and the host's own types: exhaustive both ways, only in this file.

use crate::bindings::threadkeep::threads::{library, llm, storage, types};
use crate::clock::ClockTime;
use crate::library::LibraryError;
use crate::models::{ModelCompletion, ModelFailure, ReplyBlock, Usage};
use crate::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordExpectation, RecordKey, RecordPage, StorageError,
    StoredRecord,
};

pub(crate) fn key_from_wit(key: storage::Key) -> RecordKey {
    RecordKey {
        collection: key.collection,
        name: key.name,
    }
}

pub(crate) fn item_to_wit(item: StoredRecord) -> storage::Item {
    let key = storage::Key {
        collection: item.key.collection,
        name: item.key.name,
    };
    storage::Item {
        key,
        version: item.version,
        value: item.value,
    }
}

pub(crate) fn page_to_wit(page: RecordPage) -> storage::Page {
    let damaged = page.damaged.into_iter().map(|item| storage::Damaged {
        name: item.name,
        why: types::Failure {
            code: "damaged".to_owned(),
            message: item.message,
        },
    });
    storage::Page {
        items: page.items.into_iter().map(item_to_wit).collect(),
        damaged: damaged.collect(),
        cursor: page.cursor,
    }
}

pub(crate) fn log_entry_to_wit(line: LogEntry) -> storage::Line {
    storage::Line {
        position: line.position,
        value: line.value,
    }
}

fn expectation_from_wit(expect: storage::Expectation) -> RecordExpectation {
    match expect {
        storage::Expectation::Any => RecordExpectation::Any,
        storage::Expectation::Absent => RecordExpectation::Absent,
        storage::Expectation::Version(version) => RecordExpectation::Version(version),
    }
}

pub(crate) fn op_from_wit(op: storage::Op) -> CommitOp {
    match op {
        storage::Op::Check(op) => CommitOp::Check {
            key: key_from_wit(op.key),
            expect: expectation_from_wit(op.expect),
        },
        storage::Op::Put(op) => CommitOp::Put {
            key: key_from_wit(op.key),
            expect: expectation_from_wit(op.expect),
            value: op.value,
        },
        storage::Op::Delete(key) => CommitOp::Delete {
            key: key_from_wit(key),
        },
        storage::Op::Append(op) => CommitOp::Append {
            log: op.log,
            partition: op.partition,
            at: op.at,
            value: op.value,
        },
        storage::Op::Trim(op) => CommitOp::Trim {
            log: op.log,
            partition: op.partition,
            below: op.below,
        },
    }
}

pub(crate) fn outcome_to_wit(outcome: CommitOutcome) -> bool {
    match outcome {
        CommitOutcome::Committed => true,
        CommitOutcome::Conflict => false,
    }
}

pub(crate) fn storage_error_to_wit(error: StorageError) -> storage::StorageError {
    let failure = |code: &str| types::Failure {
        code: code.to_owned(),
        message: error.to_string(),
    };
    match &error {
        StorageError::Unavailable { .. } => {
            storage::StorageError::Unavailable(failure("unavailable"))
        }
        StorageError::OutcomeUnknown { .. } => {
            storage::StorageError::OutcomeUnknown(failure("outcome-unknown"))
        }
        StorageError::QuotaExceeded { .. } => {
            storage::StorageError::QuotaExceeded(failure("quota-exceeded"))
        }
        StorageError::TooLarge { what, .. } => storage::StorageError::TooLarge(failure(what)),
        StorageError::Corrupt { .. } => storage::StorageError::Corrupt(failure("corrupt")),
        StorageError::Other { code, .. } => storage::StorageError::Other(failure(code)),
    }
}

pub(crate) fn library_error_to_wit(error: LibraryError) -> library::LibraryError {
    match error {
        LibraryError::Invalid {
            place,
            value,
            problem,
            nearest,
        } => library::LibraryError::Invalid(library::InvalidFile {
            field: place,
            value,
            problem,
            nearest,
        }),
        LibraryError::Unavailable { message } => {
            library::LibraryError::Unavailable(types::Failure {
                code: "library".to_owned(),
                message,
            })
        }
        LibraryError::Other { code, message } => library::LibraryError::Other(types::Failure {
            code: code.to_owned(),
            message,
        }),
    }
}

pub(crate) fn time_to_wit(time: ClockTime) -> types::Instant {
    types::Instant {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

pub(crate) fn time_from_wit(time: types::Instant) -> ClockTime {
    ClockTime {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

fn usage_to_wit(usage: Usage) -> types::Usage {
    let Usage {
        input,
        output,
        read,
        write,
        reasoning,
    } = usage;
    types::Usage {
        input,
        output,
        read,
        write,
        reasoning,
    }
}

pub(crate) fn completion_to_wit(completion: &ModelCompletion) -> llm::Completion {
    let blocks: Vec<serde_json::Value> =
        completion.blocks.iter().map(ReplyBlock::to_json).collect();
    llm::Completion {
        blocks: serde_json::Value::Array(blocks).to_string(),
        finish: completion.finish.clone(),
        usage: completion.usage.map(usage_to_wit),
        session: completion.session.clone(),
        id: completion.id.clone(),
        model: completion.model.clone(),
    }
}

pub(crate) fn failure_to_wit(failure: &ModelFailure) -> llm::LlmError {
    llm::LlmError {
        kind: failure.kind.as_str().to_owned(),
        code: failure.code.clone(),
        message: failure.message.clone(),
        retry: failure
            .retry_after
            .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        sent: failure.sent,
        refused: failure.refused,
        usage: failure.usage.map(usage_to_wit),
        partial: failure.partial.clone(),
    }
}
