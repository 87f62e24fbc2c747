//! The replay of the state of one thread from its entries, and its comparison with the record, the
//! head and the documents in the log `state`.

use super::json_patch::{apply_operation, apply_patch};
use super::record_reader::{list, number, sha256_hex, text};
use super::thread::ThreadRecords;
use super::{StoreInvariant, UnconfirmedFindings};
use crate::storage::{StorageBackend, StorageError};
use serde_json::{Map, Value};

/// The state to which the entries of a thread lead.
pub(super) struct StateReplay {
    /// Version of the entry that changed it last; 0 if none did.
    version: u64,
    /// Position of the last line in the log `state`.
    line: u64,
    run: u64,
    /// The document; `None` once a finding has told that it cannot be made.
    document: Option<Value>,
}

impl StateReplay {
    pub(super) fn new() -> Self {
        Self {
            version: 0,
            line: 0,
            run: 0,
            document: Some(empty_document()),
        }
    }

    /// Replays an entry; `key` is that of its thread.
    pub(super) fn replay_entry(
        &mut self,
        storage: &dyn StorageBackend,
        key: &str,
        stored: &str,
        findings: &mut UnconfirmedFindings,
    ) -> Result<(), StorageError> {
        if self.version == 0 && !stored.contains("\"state") {
            return Ok(());
        }
        let entry: Value = serde_json::from_str(stored).unwrap_or_default();
        let version = number(&entry["version"]);
        let begins =
            number(&entry["run"]) > std::mem::replace(&mut self.run, number(&entry["run"]));
        let change = &entry["state"];
        if !change.is_object() {
            let what = format!("the version of the state that the entry {version} names");
            let named = number(&entry["state_at"]);
            findings.expect_equal(StoreInvariant::Histories, &what, self.version, named);
            let kept = begins && self.has_in("run") || self.closes_call(&entry);
            let expected = format!("the entry {version} to empty a scope that is over");
            findings.add_if(StoreInvariant::Histories, kept, &expected, "no change");
            return Ok(());
        }
        let what = format!("the version before the state of {version}");
        let before = number(&change["before"]);
        findings.expect_equal(StoreInvariant::Histories, &what, self.version, before);
        if number(&change["snapshot"]) > 0 {
            self.take_line(storage, key, (version, change), findings)?;
        }
        self.version = version;
        let kept = begins && self.has_in("run");
        let applied = self
            .document
            .take()
            .and_then(|document| apply_change(document, &entry));
        let same = applied
            .as_ref()
            .is_some_and(|document| sha256_hex(&document.to_string()) == text(&change["hash"]));
        let expected = format!("the state whose hash the entry {version} has");
        let found = "another: the entry, or a document before it, was changed";
        findings.add_if(StoreInvariant::Histories, !same, &expected, found);
        let empties = list(&change["patches"])
            .first()
            .is_some_and(is_emptying_run);
        let wrong = kept && !empties && change["replaced"] != true;
        let expected = format!("the entry {version}, which begins a run, to empty its scope first");
        findings.add_if(
            StoreInvariant::Histories,
            wrong,
            &expected,
            "one that does not",
        );
        self.document = applied.filter(|_| same);
        Ok(())
    }

    /// Takes the document that an entry has written into the log `state`.
    fn take_line(
        &mut self,
        storage: &dyn StorageBackend,
        key: &str,
        (version, change): (u64, &Value),
        findings: &mut UnconfirmedFindings,
    ) -> Result<(), StorageError> {
        let at = number(&change["snapshot"]);
        let what = format!("the place of the document that the entry {version} wrote");
        findings.expect_equal(StoreInvariant::Histories, &what, self.line + 1, at);
        self.line = at;
        let lines = storage.read_log("state", key, at, 1, false)?;
        let line = lines.iter().find(|line| line.position == at);
        let line: Value = line.map_or(Value::Null, |line| {
            serde_json::from_str(&line.value).unwrap_or_default()
        });
        let wrong = number(&line["version"]) != version || !line["document"].is_object();
        let expected = format!("the document that the entry {version} wrote");
        findings.add_if(
            StoreInvariant::Histories,
            wrong,
            &expected,
            "none, or another",
        );
        let document = line["document"].clone();
        if change["replaced"] != true
            && let Some(before) = &self.document
        {
            // The texts, as numbers keep their digits and names their order.
            let (before, begun) = (before.to_string(), document.to_string());
            let wrong = before != begun;
            let expected = format!("the state before {version} in the document that it wrote");
            findings.add_if(StoreInvariant::Histories, wrong, &expected, "another");
        }
        self.document = Some(document);
        Ok(())
    }

    fn has_in(&self, scope: &str) -> bool {
        self.document
            .as_ref()
            .is_some_and(|document| has_in(document, scope))
    }

    /// Returns true if an entry has the result of a call that has a scope.
    fn closes_call(&self, entry: &Value) -> bool {
        let document = self.document.as_ref();
        let closed = closed_calls(entry);
        document.is_some_and(|document| {
            closed
                .iter()
                .any(|call| document["tool_call"].get(call).is_some())
        })
    }

    /// Compares the head and the record of a thread with what its entries lead to.
    pub(super) fn compare(&self, seen: &ThreadRecords, suspicion: &mut UnconfirmedFindings) {
        let summary = &seen.head["state"];
        let what = "the version of the state in the head";
        let version = number(&summary["version"]);
        suspicion.expect_equal(StoreInvariant::Histories, what, self.version, version);
        let line = number(&summary["snapshot"]);
        let what = "the last document in the log, by the head";
        suspicion.expect_equal(StoreInvariant::Histories, what, self.line, line);
        let (Some(document), 1..) = (&self.document, self.version) else {
            return;
        };
        let record = seen.records.json("state", &seen.key);
        let (stored, told) = (record["document"].to_string(), document.to_string());
        let wrong = stored != told || number(&record["version"]) != version;
        let expected = "a record of the state to which the entries lead";
        suspicion.add_if(
            StoreInvariant::Histories,
            wrong,
            expected,
            "another, or none",
        );
        let what = "bytes of the state";
        let bytes = document.to_string().len() as u64;
        suspicion.expect_equal(
            StoreInvariant::Counters,
            what,
            bytes,
            number(&summary["bytes"]),
        );
        for (flag, scope) in [("run", "run"), ("calls", "tool_call")] {
            let wrong = has_in(document, scope) != (summary[flag] == true);
            let expected = format!("the scope {scope} in the head as it is in the state");
            suspicion.add_if(StoreInvariant::Histories, wrong, &expected, "otherwise");
        }
    }
}

fn empty_document() -> Value {
    let scopes = ["thread", "run", "tool_call"];
    let empty = |scope: &str| (scope.to_owned(), Value::from(Map::new()));
    Value::Object(scopes.into_iter().map(empty).collect())
}

fn has_in(document: &Value, scope: &str) -> bool {
    document[scope]
        .as_object()
        .is_some_and(|scope| !scope.is_empty())
}

fn is_emptying_run(patch: &Value) -> bool {
    let step = &patch["patch"][0];
    text(&patch["scope"]) == "run" && step["path"] == "" && step["value"] == Value::from(Map::new())
}

fn closed_calls(entry: &Value) -> Vec<String> {
    let results = list(&entry["events"]).iter();
    let results = results.filter(|event| event["type"] == "tool_result");
    let id = |event: &Value| {
        let (version, index) = (number(&event["version"]), number(&event["index"]));
        format!("call_{version}_{index}")
    };
    results.map(id).collect()
}

/// Applies the change of an entry to the document that it begins with.
fn apply_change(mut document: Value, entry: &Value) -> Option<Value> {
    let change = &entry["state"];
    for patch in list(&change["patches"]) {
        apply_patch(scope_of(&mut document, patch)?, &patch["patch"])?;
        drop_empty(&mut document, patch);
    }
    for operation in list(&change["operations"]) {
        apply_operation(scope_of(&mut document, operation)?, operation)?;
        drop_empty(&mut document, operation);
    }
    let calls = document["tool_call"].as_object_mut()?;
    for call in closed_calls(entry) {
        calls.shift_remove(&call);
    }
    Some(document)
}

/// Returns the object that a change is about; that of a call is made.
fn scope_of<'a>(document: &'a mut Value, change: &Value) -> Option<&'a mut Value> {
    match text(&change["scope"]) {
        "thread" => document.get_mut("thread"),
        "run" => document.get_mut("run"),
        "tool-call" => {
            let calls = document.get_mut("tool_call")?.as_object_mut()?;
            let call = calls.entry(text(&change["call"]));
            Some(call.or_insert_with(|| Map::new().into()))
        }
        _ => None,
    }
}

/// Drops the object of a call in which nothing is left.
fn drop_empty(document: &mut Value, change: &Value) {
    let call = text(&change["call"]);
    if let Some(calls) = document["tool_call"].as_object_mut()
        && calls
            .get(call)
            .is_some_and(|scope| *scope == Value::from(Map::new()))
    {
        calls.shift_remove(call);
    }
}
