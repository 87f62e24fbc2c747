//! Independent books of states: each document is made again from the entries of its thread, as
//! plain JSON and with another implementation of patches.

use super::store::TestStore;
use serde_json::{Map, Value, json};

/// The state to which the entries of a thread lead.
#[derive(Debug, Clone)]
pub struct StateBook {
    /// Version of the entry that changed it last; 0 if none did.
    pub version: u64,
    run: u64,
    pub document: Value,
}

impl Default for StateBook {
    fn default() -> Self {
        Self {
            version: 0,
            run: 0,
            document: json!({"thread": {}, "run": {}, "tool_call": {}}),
        }
    }
}

impl StateBook {
    /// Replays an entry of the thread of this key.
    pub fn replay(&mut self, store: &TestStore, key: &str, entry: &Value) -> Result<(), String> {
        let begins = entry["run"].as_u64() > Some(self.run);
        self.run = entry["run"].as_u64().unwrap_or(self.run);
        let (change, version) = (&entry["state"], &entry["version"]);
        let closed = closed_calls(entry);
        let kept = begins && !is_empty(&self.document["run"]);
        if !change.is_object() {
            let left = kept
                || closed
                    .iter()
                    .any(|call| self.document["tool_call"].get(call).is_some());
            return match left {
                true => Err(format!(
                    "{key} {version}: a scope that is over is not emptied"
                )),
                false => Ok(()),
            };
        }
        if change["before"].as_u64().unwrap_or(0) != self.version {
            return Err(format!("{key} {version}: names another state before"));
        }
        if let Some(at) = change["snapshot"].as_u64() {
            let lines = store.states.get(key).map(Vec::as_slice).unwrap_or_default();
            let line = lines.get((at - 1) as usize).ok_or("no line of the state")?;
            let line: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            if change["replaced"] != true && line["document"] != self.document {
                return Err(format!("{key} {version}: writes another document down"));
            }
            self.document = line["document"].clone();
        }
        apply_change(&mut self.document, change)
            .ok_or_else(|| format!("{key} {version}: its change does not apply: {change}"))?;
        let calls = self.document["tool_call"]
            .as_object_mut()
            .ok_or("no calls")?;
        for call in closed {
            calls.remove(&call);
        }
        self.version = version.as_u64().unwrap_or(0);
        let first = &change["patches"][0];
        let empties = first["scope"] == "run" && first["patch"][0]["path"] == "";
        match kept && !empties && change["replaced"] != true {
            true => Err(format!("{key} {version}: a run begins with what was left")),
            false => Ok(()),
        }
    }

    /// Compares the record and the head of the thread with the book.
    pub fn compare(&self, key: &str, record: &Value, head: &Value) -> Result<(), String> {
        let summary = &head["state"];
        let version = summary["version"].as_u64().unwrap_or(0);
        let inherits = summary.is_object() && version == 0 && self.version == 0;
        let scopes =
            |document: &Value| (is_empty(&document["run"]), is_empty(&document["tool_call"]));
        if inherits {
            return match scopes(&record["document"]) {
                (true, true) => Ok(()),
                _ => Err(format!(
                    "{key}: inherits more than the scope of the thread: {record}"
                )),
            };
        }
        if version != self.version {
            return Err(format!("{key}: the head names the state of {version}"));
        }
        if version == 0 {
            return Ok(());
        }
        if record["document"] != self.document || record["version"] != version {
            return Err(format!("{key}: {record} is not {}", self.document));
        }
        let (run, calls) = scopes(&self.document);
        match (summary["run"] == true, summary["calls"] == true) == (!run, !calls) {
            true => Ok(()),
            false => Err(format!(
                "{key}: the head says {summary} of {}",
                self.document
            )),
        }
    }
}

/// The state of a thread at one of its own versions.
pub fn document_at(store: &TestStore, key: &str, version: u64) -> Value {
    let mut book = StateBook::default();
    for line in store.histories.get(key).into_iter().flatten() {
        let entry: Value = serde_json::from_str(line).expect("an entry is JSON");
        if entry["version"].as_u64() > Some(version) {
            break;
        }
        book.replay(store, key, &entry)
            .expect("the auditor has seen it");
    }
    book.document
}

fn is_empty(scope: &Value) -> bool {
    scope.as_object().is_none_or(Map::is_empty)
}

fn closed_calls(entry: &Value) -> Vec<String> {
    let events = entry["events"].as_array().into_iter().flatten();
    let results = events.filter(|event| event["type"] == "tool_result");
    let id = |event: &Value| format!("call_{}_{}", event["version"], event["index"]);
    results.map(id).collect()
}

/// Applies the patches of a change, then its operations.
fn apply_change(document: &mut Value, change: &Value) -> Option<()> {
    for scoped in change["patches"].as_array().into_iter().flatten() {
        let scope = scope_of(document, scoped)?;
        let patch: json_patch::Patch = serde_json::from_value(scoped["patch"].clone()).ok()?;
        json_patch::patch(scope, &patch).ok()?;
    }
    for operation in change["operations"].as_array().into_iter().flatten() {
        apply_operation(scope_of(document, operation)?, operation)?;
    }
    Some(())
}

fn scope_of<'a>(document: &'a mut Value, change: &Value) -> Option<&'a mut Value> {
    match change["scope"].as_str()? {
        "tool-call" => {
            let calls = document["tool_call"].as_object_mut()?;
            Some(
                calls
                    .entry(change["call"].as_str()?)
                    .or_insert_with(|| json!({})),
            )
        }
        scope => document.get_mut(scope),
    }
}

/// Applies an operation at a place directly in its scope.
fn apply_operation(scope: &mut Value, operation: &Value) -> Option<()> {
    let name = operation["path"].as_str()?.strip_prefix('/')?;
    let (scope, value) = (scope.as_object_mut()?, &operation["value"]);
    let found = scope.get(name).cloned();
    let op = operation["op"].as_str()?;
    let made = match (op, &found) {
        ("add" | "max" | "min", None) => value.clone(),
        ("add" | "max" | "min", Some(found)) => {
            let (found, given) = (found.as_i64()?, value.as_i64()?);
            json!(match op {
                "add" => found.checked_add(given)?,
                "max" => found.max(given),
                _ => found.min(given),
            })
        }
        ("set-remove", None) => return Some(()),
        (_, found) => {
            let empty = Vec::new();
            let items = found.as_ref().map_or(Some(&empty), Value::as_array)?;
            let others = items.iter().filter(|item| *item != value).cloned();
            match op {
                "set-add" if items.contains(value) => found.clone()?,
                "set-add" => others.chain([value.clone()]).collect(),
                "set-remove" => others.collect(),
                _ => return None,
            }
        }
    };
    scope.insert(name.to_owned(), made);
    Some(())
}
