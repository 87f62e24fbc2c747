//! Sizes of what crosses between component and host, for the meter: the bytes of texts, plus a
//! constant for each thing around them, so that a million empty things are counted too.

use crate::bindings::threadkeep::threads::{llm, types};
use crate::library::LibraryError;
use crate::storage::{CommitOp, LogEntry, RecordKey, RecordPage, StorageError, StoredRecord};

/// Cost of one thing beside its texts: about what it takes in the host's memory.
const THING_BYTES: usize = 64;

pub(super) fn keys(keys: &[RecordKey]) -> usize {
    keys.iter().map(key).sum()
}

fn key(key: &RecordKey) -> usize {
    THING_BYTES + key.collection.len() + key.name.len()
}

pub(super) fn texts(texts: &[&str]) -> usize {
    texts.iter().map(|text| THING_BYTES + text.len()).sum()
}

pub(super) fn ops(ops: &[CommitOp]) -> usize {
    ops.iter().map(op).sum()
}

fn op(op: &CommitOp) -> usize {
    match op {
        CommitOp::Check { key: name, .. } | CommitOp::Delete { key: name } => key(name),
        CommitOp::Put {
            key: name, value, ..
        } => key(name) + value.len(),
        CommitOp::Append {
            log,
            partition,
            value,
            ..
        } => texts(&[log, partition]) + value.len(),
        CommitOp::Trim { log, partition, .. } => texts(&[log, partition]),
    }
}

fn item(item: &StoredRecord) -> usize {
    key(&item.key) + item.value.len()
}

pub(super) fn items(answer: &Result<Vec<StoredRecord>, StorageError>) -> usize {
    answer
        .as_ref()
        .map_or(THING_BYTES, |items| items.iter().map(item).sum())
}

pub(super) fn page(answer: &Result<RecordPage, StorageError>) -> usize {
    answer.as_ref().map_or(THING_BYTES, |page| {
        let damaged = page.damaged.iter();
        let damaged: usize = damaged
            .map(|item| texts(&[&item.name, &item.message]))
            .sum();
        page.items.iter().map(item).sum::<usize>() + damaged
    })
}

pub(super) fn lines(answer: &Result<Vec<LogEntry>, StorageError>) -> usize {
    answer.as_ref().map_or(THING_BYTES, |lines| {
        lines.iter().map(|line| texts(&[&line.value])).sum()
    })
}

pub(super) fn names(names: &[String]) -> usize {
    names.iter().map(|name| texts(&[name])).sum()
}

pub(super) fn listing(answer: &Result<Vec<String>, LibraryError>) -> usize {
    answer.as_ref().map_or(THING_BYTES, |listed| names(listed))
}

pub(super) fn documents(answer: &Result<Vec<Option<String>>, LibraryError>) -> usize {
    answer.as_ref().map_or(THING_BYTES, |documents| {
        let texts_of = |document: &Option<String>| texts(&[document.as_deref().unwrap_or("")]);
        documents.iter().map(texts_of).sum()
    })
}

pub(super) fn model_request(request: &llm::Request) -> usize {
    let tools = request.tools.iter();
    let tools = tools.map(|tool| texts(&[&tool.name, &tool.description, &tool.schema]));
    texts(&[&request.system, &request.model, &request.options])
        + tools.sum::<usize>()
        + names(&request.messages)
}

pub(super) fn model_answer(answer: &Result<llm::Completion, llm::LlmError>) -> usize {
    match answer {
        Ok(completion) => texts(&[&completion.blocks, &completion.finish]),
        Err(failure) => texts(&[&failure.message, &failure.partial]),
    }
}

pub(super) fn tool_calls(calls: &[types::ToolCall]) -> usize {
    let calls = calls.iter();
    calls
        .map(|call| texts(&[&call.thread, &call.name, &call.arguments]))
        .sum()
}

pub(super) fn tool_outcomes(outcomes: &[types::ToolOutcome]) -> usize {
    let outcomes = outcomes.iter();
    outcomes
        .map(|outcome| texts(&[&outcome.content, &outcome.patches, &outcome.operations]))
        .sum()
}
