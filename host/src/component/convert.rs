//! Conversions between WIT and the host's own types: exhaustive both ways, only in this file.

use crate::bindings::threadkeep::threads::{library, llm, storage, types};
use crate::clock::Time;
use crate::library::LibraryError;
use crate::models::{Block, Completion, Failure, Usage};
use crate::storage::{Expect, Item, Key, Line, Op, Outcome, Page, StorageError};

pub(crate) fn key_in(key: storage::Key) -> Key {
    Key {
        collection: key.collection,
        name: key.name,
    }
}

pub(crate) fn item(item: Item) -> storage::Item {
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

pub(crate) fn page(page: Page) -> storage::Page {
    let damaged = page.damaged.into_iter().map(|item| storage::Damaged {
        name: item.name,
        why: types::Failure {
            code: "damaged".to_owned(),
            message: item.message,
        },
    });
    storage::Page {
        items: page.items.into_iter().map(item).collect(),
        damaged: damaged.collect(),
        cursor: page.cursor,
    }
}

pub(crate) fn line(line: Line) -> storage::Line {
    storage::Line {
        position: line.position,
        value: line.value,
    }
}

fn expect_in(expect: storage::Expectation) -> Expect {
    match expect {
        storage::Expectation::Any => Expect::Any,
        storage::Expectation::Absent => Expect::Absent,
        storage::Expectation::Version(version) => Expect::Version(version),
    }
}

pub(crate) fn op_in(op: storage::Op) -> Op {
    match op {
        storage::Op::Check(op) => Op::Check {
            key: key_in(op.key),
            expect: expect_in(op.expect),
        },
        storage::Op::Put(op) => Op::Put {
            key: key_in(op.key),
            expect: expect_in(op.expect),
            value: op.value,
        },
        storage::Op::Delete(key) => Op::Delete { key: key_in(key) },
        storage::Op::Append(op) => Op::Append {
            log: op.log,
            partition: op.partition,
            at: op.at,
            value: op.value,
        },
        storage::Op::Trim(op) => Op::Trim {
            log: op.log,
            partition: op.partition,
            below: op.below,
        },
    }
}

pub(crate) fn outcome(outcome: Outcome) -> storage::Outcome {
    match outcome {
        Outcome::Committed => storage::Outcome {
            committed: true,
            found: Vec::new(),
        },
        Outcome::Conflict(found) => storage::Outcome {
            committed: false,
            found: found.into_iter().map(item).collect(),
        },
    }
}

pub(crate) fn storage_error(error: StorageError) -> storage::Error {
    let failure = |code: &str| types::Failure {
        code: code.to_owned(),
        message: error.to_string(),
    };
    match &error {
        StorageError::Unavailable { .. } => storage::Error::Unavailable(failure("unavailable")),
        StorageError::OutcomeUnknown { .. } => {
            storage::Error::OutcomeUnknown(failure("outcome-unknown"))
        }
        StorageError::QuotaExceeded { .. } => {
            storage::Error::QuotaExceeded(failure("quota-exceeded"))
        }
        StorageError::TooLarge { what, .. } => storage::Error::TooLarge(failure(what)),
        StorageError::Corrupt { .. } => storage::Error::Corrupt(failure("corrupt")),
        StorageError::Other { code, .. } => storage::Error::Other(failure(code)),
    }
}

pub(crate) fn library_error(error: LibraryError) -> library::Error {
    match error {
        LibraryError::Invalid {
            place,
            value,
            problem,
            nearest,
        } => library::Error::Invalid(types::Invalid {
            field: place,
            value,
            problem,
            nearest,
        }),
        LibraryError::Unavailable { message } => library::Error::Unavailable(types::Failure {
            code: "library".to_owned(),
            message,
        }),
        LibraryError::Other { code, message } => library::Error::Other(types::Failure {
            code: code.to_owned(),
            message,
        }),
    }
}

pub(crate) fn instant(time: Time) -> types::Instant {
    types::Instant {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

pub(crate) fn time_in(time: types::Instant) -> Time {
    Time {
        seconds: time.seconds,
        nanos: time.nanos,
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

pub(crate) fn completion(completion: &Completion) -> llm::Completion {
    let blocks: Vec<serde_json::Value> = completion.blocks.iter().map(block).collect();
    llm::Completion {
        blocks: serde_json::Value::Array(blocks).to_string(),
        finish: completion.finish.clone(),
        usage: completion.usage.map(usage),
        session: completion.session.clone(),
    }
}

fn block(block: &Block) -> serde_json::Value {
    match block {
        Block::Text { text } => serde_json::json!({"type": "text", "text": text}),
        Block::Thinking { text, raw } => {
            serde_json::json!({"type": "thinking", "text": text, "raw": raw})
        }
        Block::ToolUse {
            id,
            name,
            arguments,
            raw,
        } => {
            let mut block = serde_json::json!({"type": "tool_use", "id": id, "name": name, "arguments": arguments});
            if let Some(raw) = raw {
                block["raw"] = raw.as_str().into();
            }
            block
        }
    }
}

pub(crate) fn failure(failure: &Failure) -> llm::Error {
    llm::Error {
        kind: failure.kind.as_str().to_owned(),
        code: failure.code.clone(),
        message: failure.message.clone(),
        retry: failure
            .retry_after
            .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        sent: failure.sent,
        usage: failure.usage.map(usage),
        partial: failure.partial.clone(),
    }
}
