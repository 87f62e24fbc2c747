//! Conversions between WIT and the types of the store, the library and the models: only in this
//! file.

use crate::exports::{library, llm, storage, types};
use std::time::{SystemTime, UNIX_EPOCH};
use threadkeep_adapters::library::LibraryError;
use threadkeep_adapters::models::{
    CompletionRequest, ModelCompletion, ModelFailure, ReplyBlock, ToolSpec, Usage,
};
use threadkeep_storage::{
    CommitOp, CommitOutcome, LogEntry, RecordExpectation, RecordKey, RecordPage, StorageError,
    StoredRecord,
};

pub fn key(key: storage::Key) -> RecordKey {
    RecordKey {
        collection: key.collection,
        name: key.name,
    }
}

pub fn item(item: StoredRecord) -> storage::Item {
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

pub fn page(page: RecordPage) -> storage::Page {
    let damaged = page.damaged.into_iter().map(|item| storage::Damaged {
        name: item.name,
        why: failure_of("damaged", item.message),
    });
    storage::Page {
        items: page.items.into_iter().map(item).collect(),
        damaged: damaged.collect(),
        cursor: page.cursor,
    }
}

pub fn line(line: LogEntry) -> storage::Line {
    storage::Line {
        position: line.position,
        value: line.value,
    }
}

fn expectation(expect: storage::Expectation) -> RecordExpectation {
    match expect {
        storage::Expectation::Any => RecordExpectation::Any,
        storage::Expectation::Absent => RecordExpectation::Absent,
        storage::Expectation::Version(version) => RecordExpectation::Version(version),
    }
}

pub fn op(op: storage::Op) -> CommitOp {
    match op {
        storage::Op::Check(op) => CommitOp::Check {
            key: key(op.key),
            expect: expectation(op.expect),
        },
        storage::Op::Put(op) => CommitOp::Put {
            key: key(op.key),
            expect: expectation(op.expect),
            value: op.value,
        },
        storage::Op::Delete(deleted) => CommitOp::Delete { key: key(deleted) },
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

pub fn is_committed(outcome: CommitOutcome) -> bool {
    match outcome {
        CommitOutcome::Committed => true,
        CommitOutcome::Conflict => false,
    }
}

pub fn storage_error(error: StorageError) -> storage::StorageError {
    let message = error.to_string();
    match &error {
        StorageError::Unavailable { .. } => {
            storage::StorageError::Unavailable(failure_of("unavailable", message))
        }
        StorageError::OutcomeUnknown { .. } => {
            storage::StorageError::OutcomeUnknown(failure_of("outcome-unknown", message))
        }
        StorageError::QuotaExceeded { .. } => {
            storage::StorageError::QuotaExceeded(failure_of("quota-exceeded", message))
        }
        StorageError::TooLarge { what, .. } => {
            storage::StorageError::TooLarge(failure_of(what, message))
        }
        StorageError::Corrupt { .. } => {
            storage::StorageError::Corrupt(failure_of("corrupt", message))
        }
        StorageError::Other { code, .. } => storage::StorageError::Other(failure_of(code, message)),
    }
}

pub fn library_error(error: LibraryError) -> library::LibraryError {
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
            library::LibraryError::Unavailable(failure_of("library", message))
        }
        LibraryError::Other { code, message } => {
            library::LibraryError::Other(failure_of(code, message))
        }
    }
}

fn failure_of(code: &str, message: String) -> types::Failure {
    types::Failure {
        code: code.to_owned(),
        message,
    }
}

pub fn instant(time: SystemTime) -> types::Instant {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => types::Instant {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => types::Instant {
            seconds: -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
            nanos: 0,
        },
    }
}

/// Makes the request for the provider that knows the model by this name. It is whole, as each of
/// `runner.run` is.
pub fn request(asked: llm::Request, model: String) -> CompletionRequest {
    let tools = asked.tools.into_iter().map(|tool| ToolSpec {
        name: tool.name,
        description: tool.description,
        schema: tool.schema,
    });
    CompletionRequest {
        model,
        system: asked.system,
        tools: tools.collect(),
        messages: asked.messages,
        images: Default::default(),
        output_max: asked.output,
        session: asked.session,
    }
}

fn usage(usage: Usage) -> types::Usage {
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

pub fn completion(completion: &ModelCompletion) -> llm::Completion {
    let blocks: Vec<_> = completion.blocks.iter().map(ReplyBlock::to_json).collect();
    llm::Completion {
        blocks: serde_json::Value::Array(blocks).to_string(),
        finish: completion.finish.clone(),
        usage: completion.usage.map(usage),
        session: completion.session.clone(),
        id: completion.id.clone(),
        model: completion.model.clone(),
    }
}

pub fn failure(failure: &ModelFailure) -> llm::LlmError {
    llm::LlmError {
        kind: failure.kind.as_str().to_owned(),
        code: failure.code.clone(),
        message: failure.message.clone(),
        retry: failure
            .retry_after
            .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        sent: failure.sent,
        refused: failure.refused,
        usage: failure.usage.map(usage),
        partial: failure.partial.clone(),
    }
}
