//! Edits of a state: what one append or one tool call changes, as a caller writes it.

use super::operation::OperationKind;
use super::pointer::JsonPointer;
use super::scope::{StateScope, emptying_patch};
use super::storable::{STATE_BYTES_MAX, find_unstorable};
use crate::json::record;
use crate::json::{self, JsonValue};

/// Most bytes of the patches and operations of one append or of one round of calls, as they are
/// stored. With the results of a round and a message they still fit an entry.
pub const EDITS_BYTES_MAX: usize = 64 << 10;
/// Most operations of one append or of one round of calls.
pub const OPERATIONS_MAX: usize = 64;
/// Most patches of one append or of one round of calls.
const PATCHES_MAX: usize = 64;

/// The refusal of an edit, by its place: `patches[1].patch[0]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditRefusal {
    /// The place among the edits.
    pub place: String,
    /// A sentence that says what is wrong.
    pub problem: String,
}

/// A patch of one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedPatch {
    /// The scope.
    pub scope: StateScope,
    /// Id of the call, for the scope of one.
    pub call: Option<String>,
    /// The patch, a list of operations as RFC 6902 writes them.
    pub patch: JsonValue<'static>,
}

record!(ScopedPatch { scope, call or nothing, patch });

/// An operation on one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedOperation {
    /// The scope.
    pub scope: StateScope,
    /// Id of the call, for the scope of one.
    pub call: Option<String>,
    /// Kind of the operation.
    pub op: OperationKind,
    /// JSON pointer to the place in the scope.
    pub path: String,
    /// The integer, or the element of the set.
    pub value: JsonValue<'static>,
}

record!(ScopedOperation { scope, call or nothing, op, path, value });

impl ScopedOperation {
    /// Returns the place that it changes.
    pub(super) fn pointer(&self) -> Result<JsonPointer, String> {
        JsonPointer::parse(&self.path)
    }
}

/// A caller's whole document: it replaces the scopes that it names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateSnapshot {
    /// The scope of the thread.
    pub thread: Option<JsonValue<'static>>,
    /// The scope of the run.
    pub run: Option<JsonValue<'static>>,
}

/// The edits of one append or of one call. They apply in this order: the snapshot, the patches, the
/// operations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateEdits {
    /// A whole document.
    pub snapshot: Option<StateSnapshot>,
    /// Patches, in order.
    pub patches: Vec<ScopedPatch>,
    /// Operations, in order.
    pub operations: Vec<ScopedOperation>,
}

impl StateEdits {
    /// Parses the edits of a caller, each a JSON object. `own_call` is the call whose scope is
    /// meant by an edit of the scope `tool-call` that names no call.
    ///
    /// # Errors
    /// The first that is not valid, by its place.
    pub fn parse(
        patches: &[String],
        operations: &[String],
        snapshot: Option<&str>,
        own_call: Option<&str>,
    ) -> Result<Self, EditRefusal> {
        check_count("patches", patches.len(), PATCHES_MAX)?;
        check_count("operations", operations.len(), OPERATIONS_MAX)?;
        let bytes = patches.iter().chain(operations).map(String::len).sum();
        check_edit_bytes(bytes)?;
        let mut edits = Self::default();
        for (n, text) in patches.iter().enumerate() {
            let place = format!("patches[{n}]");
            edits.patches.push(read_patch(&place, text, own_call)?);
        }
        for (n, text) in operations.iter().enumerate() {
            let place = format!("operations[{n}]");
            edits
                .operations
                .push(read_operation(&place, text, own_call)?);
        }
        check_edit_bytes(edits.stored_bytes())?;
        edits.snapshot = snapshot.map(read_snapshot).transpose()?;
        Ok(edits)
    }

    /// Parses the edits that a tool returns for the call `own_call`: two JSON lists.
    ///
    /// # Errors
    /// The first that is not valid, by its place.
    pub fn parse_lists(
        patches: Option<&str>,
        operations: Option<&str>,
        own_call: &str,
    ) -> Result<Self, EditRefusal> {
        let patches = read_list("patches", patches)?;
        let operations = read_list("operations", operations)?;
        Self::parse(&patches, &operations, None, Some(own_call))
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.patches.is_empty() && self.operations.is_empty()
    }

    /// Bytes of the patches and operations as they are stored.
    pub fn stored_bytes(&self) -> usize {
        let patches = self.patches.iter().map(|patch| json::to_text(patch).len());
        let operations = self.operations.iter();
        let operations = operations.map(|operation| json::to_text(operation).len());
        patches.chain(operations).sum()
    }

    /// Adds the patches and operations of others after these.
    pub fn add(&mut self, later: Self) {
        self.patches.extend(later.patches);
        self.operations.extend(later.operations);
    }

    /// Returns true unless the edits replace the scope of the run as a whole.
    pub fn empties_run(&self) -> bool {
        let replaced = self.snapshot.as_ref();
        replaced.is_none_or(|snapshot| snapshot.run.is_none())
    }

    /// Records that a run which begins empties its scope before everything else, unless the edits
    /// replace it.
    pub fn empty_run_first(&mut self) {
        if !self.empties_run() {
            return;
        }
        let first = ScopedPatch {
            scope: StateScope::Run,
            call: None,
            patch: emptying_patch(),
        };
        self.patches.insert(0, first);
    }

    /// Returns the calls whose scopes the edits change, with the place of each.
    pub fn named_calls(&self) -> impl Iterator<Item = (String, &str)> {
        let patches = (0_usize..)
            .zip(&self.patches)
            .filter_map(|(n, patch)| Some((format!("patches[{n}].call"), patch.call.as_deref()?)));
        let operations = (0_usize..)
            .zip(&self.operations)
            .filter_map(|(n, operation)| {
                Some((format!("operations[{n}].call"), operation.call.as_deref()?))
            });
        patches.chain(operations)
    }
}

fn refusal(place: impl Into<String>, problem: impl Into<String>) -> EditRefusal {
    EditRefusal {
        place: place.into(),
        problem: problem.into(),
    }
}

fn read_list(field: &str, text: Option<&str>) -> Result<Vec<String>, EditRefusal> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    // As the items are stored they may be longer by a few bytes, never by as much.
    if text.len() > 2 * EDITS_BYTES_MAX {
        check_edit_bytes(text.len())?;
    }
    match json::parse(text) {
        Ok(JsonValue::Array(items)) => Ok(items.iter().map(ToString::to_string).collect()),
        _ => Err(refusal(field, "is not a JSON list")),
    }
}

fn check_count(field: &str, count: usize, most: usize) -> Result<(), EditRefusal> {
    match count > most {
        true => Err(refusal(field, format!("are {count}, the most is {most}"))),
        false => Ok(()),
    }
}

/// Refuses more bytes of patches and operations than [`EDITS_BYTES_MAX`].
pub(super) fn check_edit_bytes(bytes: usize) -> Result<(), EditRefusal> {
    match bytes > EDITS_BYTES_MAX {
        true => Err(refusal(
            "patches",
            format!("and operations have {bytes} bytes, the most is {EDITS_BYTES_MAX}"),
        )),
        false => Ok(()),
    }
}

/// Parses an object that has these fields and no others.
fn read_object(place: &str, text: &str, known: &[&str]) -> Result<JsonValue<'static>, EditRefusal> {
    let parsed = json::parse(text).map_err(|wrong| refusal(place, wrong.to_string()))?;
    let JsonValue::Object(map) = &parsed else {
        return Err(refusal(place, "is not a JSON object"));
    };
    if let Some(name) = map.keys().find(|name| !known.contains(name)) {
        let names = known.join(", ");
        let problem = format!("is not a field here: {names}");
        return Err(refusal(format!("{place}.{name}"), problem));
    }
    match find_unstorable(&parsed) {
        Some(problem) => Err(refusal(place, problem)),
        None => Ok(parsed.into_owned()),
    }
}

fn read_scope(
    place: &str,
    object: &JsonValue<'_>,
    own_call: Option<&str>,
) -> Result<(StateScope, Option<String>), EditRefusal> {
    let word = object.get("scope").and_then(JsonValue::as_str);
    let Some(scope) = word.and_then(StateScope::parse) else {
        let names = StateScope::NAMES.join(", ");
        return Err(refusal(
            format!("{place}.scope"),
            format!("is none of {names}"),
        ));
    };
    let call = match object.get("call") {
        None => None,
        Some(JsonValue::String(call)) => Some(call.as_ref()),
        Some(_) => return Err(refusal(format!("{place}.call"), "is not a text")),
    };
    match (scope, call.or(own_call)) {
        (StateScope::ToolCall, Some(call)) => Ok((scope, Some(call.to_owned()))),
        (StateScope::ToolCall, None) => {
            let problem = "is missing: the id of an open call, call_<version>_<index>";
            Err(refusal(format!("{place}.call"), problem))
        }
        _ if call.is_some() => {
            let problem = "belongs to the scope tool-call alone";
            Err(refusal(format!("{place}.call"), problem))
        }
        _ => Ok((scope, None)),
    }
}

fn read_patch(place: &str, text: &str, own_call: Option<&str>) -> Result<ScopedPatch, EditRefusal> {
    let object = read_object(place, text, &["scope", "call", "patch"])?;
    let (scope, call) = read_scope(place, &object, own_call)?;
    let patch = object.get("patch").cloned().unwrap_or(JsonValue::Null);
    match patch {
        JsonValue::Array(_) => Ok(ScopedPatch { scope, call, patch }),
        _ => {
            let problem = "is not a list of operations (RFC 6902)";
            Err(refusal(format!("{place}.patch"), problem))
        }
    }
}

fn read_operation(
    place: &str,
    text: &str,
    own_call: Option<&str>,
) -> Result<ScopedOperation, EditRefusal> {
    let object = read_object(place, text, &["scope", "call", "op", "path", "value"])?;
    let (scope, call) = read_scope(place, &object, own_call)?;
    let word = object.get("op").and_then(JsonValue::as_str);
    let Some(op) = word.and_then(OperationKind::parse) else {
        let problem = "is none of add, max, min, set-add, set-remove";
        return Err(refusal(format!("{place}.op"), problem));
    };
    let path = object.get("path").and_then(JsonValue::as_str).unwrap_or("");
    JsonPointer::parse(path).map_err(|problem| refusal(format!("{place}.path"), problem))?;
    let Some(value) = object.get("value").cloned() else {
        return Err(refusal(format!("{place}.value"), "is missing"));
    };
    Ok(ScopedOperation {
        scope,
        call,
        op,
        path: path.to_owned(),
        value,
    })
}

fn read_snapshot(text: &str) -> Result<StateSnapshot, EditRefusal> {
    if text.len() > STATE_BYTES_MAX {
        let most = STATE_BYTES_MAX;
        return Err(refusal("snapshot", format!("has more than {most} bytes")));
    }
    let object = read_object("snapshot", text, &["thread", "run"])?;
    let scope = |name: &str| match object.get(name) {
        None => Ok(None),
        Some(value @ JsonValue::Object(_)) => Ok(Some(value.clone())),
        Some(_) => Err(refusal(format!("snapshot.{name}"), "is not an object")),
    };
    let snapshot = StateSnapshot {
        thread: scope("thread")?,
        run: scope("run")?,
    };
    match snapshot == StateSnapshot::default() {
        true => Err(refusal("snapshot", "names no scope: thread, run")),
        false => Ok(snapshot),
    }
}
