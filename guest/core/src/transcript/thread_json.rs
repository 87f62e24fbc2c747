//! `thread.json` and `state.json`: the state of a thread, for people and other programs. Money is a
//! decimal number here, and hidden characters are escaped ([`threadkeep_units::printable`]).

use crate::error::Error;
use crate::json::{self, JsonObject, JsonValue, ObjectWriter, ToJson};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::plan::LoadedThread;
use crate::thread::UsageCounters;
use threadkeep_units::printable::escape_json;

/// Renders `thread.json` from one snapshot; `version` is the version it was made from.
pub fn thread_json(loaded: &LoadedThread) -> Result<String, Error> {
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    let result = thread.result.as_deref();
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add("thread_id", &thread.id)
        .add("directive", &thread.directive)
        .add("status", &head.status)
        .add("created_at", &thread.created.rfc3339())
        .add("updated_at", &head.updated.rfc3339())
        .add("model", &thread.model)
        .add("limits", &CapsObject(&head.limits))
        .add("capabilities", &thread.capabilities)
        .add("cost", &CostObject(&head.counters))
        .add("cause", &head.cause)
        .add("outcome", &thread.outcome)
        .add("result", &result.and_then(|text| json::parse(text).ok()))
        .add("title", &thread.title)
        .add("parent_id", &thread.parent)
        .add("chain_root_id", &thread.chain)
        .add("continuation_of", &thread.previous)
        .add("continuation_thread_id", &thread.next)
        .add("version", &head.version)
        .add("hash", &head.hash)
        .finish();
    format_document(&text)
}

/// Renders the part of `state.json` that comes from the records of a thread; `messages` are the
/// JSON messages of its live window. What the head alone knows is null where it is not of the
/// `newest` version: no entry tells status and figures.
pub fn state_json(
    loaded: &LoadedThread,
    newest: bool,
    messages: &[String],
    saved_at: &str,
) -> Result<String, Error> {
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    let messages: Vec<JsonValue<'_>> = messages
        .iter()
        .filter_map(|text| json::parse(text).ok())
        .collect();
    let inputs = json::parse(&thread.inputs).unwrap_or(JsonValue::Object(JsonObject::new()));
    let now = newest.then_some(head);
    let cause = now.and_then(|head| head.cause.as_ref());
    let cause = cause.filter(|_| !head.status.is_terminal());
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add("thread_id", &thread.id)
        .add("directive", thread.directive.as_deref().unwrap_or("chat"))
        .add("parent_thread_id", &thread.parent)
        .add("version", "1.1.0")
        .add("saved_at", saved_at)
        .add("inputs", &inputs)
        .add("turn_number", &now.map(|head| head.counters.turns))
        .add("cost", &now.map(|head| CostObject(&head.counters)))
        .add("limits", &CapsObject(&head.limits))
        .add("status", &now.map(|head| head.status))
        .add("suspend_reason", &cause.map(|cause| &cause.reason))
        .add("required_caps", &thread.capabilities)
        .add("messages", &messages)
        .add("history_version", &head.version)
        .finish();
    format_document(&text)
}

struct CostObject<'a>(&'a UsageCounters);

impl ToJson for CostObject<'_> {
    fn write(&self, out: &mut String) {
        let Self(used) = self;
        ObjectWriter::new(out)
            .add("turns", &used.turns)
            .add("input_tokens", &used.usage.context())
            .add("output_tokens", &used.usage.output)
            .add("spend", &DecimalDollars(used.spend))
            .add("duration_ms", &used.duration)
            .finish();
    }
}

struct CapsObject<'a>(&'a ThreadCaps);

impl ToJson for CapsObject<'_> {
    fn write(&self, out: &mut String) {
        let Self(limits) = self;
        ObjectWriter::new(out)
            .add("turns", &limits.turns)
            .add("tokens", &limits.tokens)
            .add("spend", &limits.spend.map(DecimalDollars))
            .add("spawns", &limits.spawns)
            .add("depth", &limits.depth)
            .add("duration_ms", &limits.duration)
            .finish();
    }
}

/// An amount in dollars as a JSON number: its canonical decimal text is one.
struct DecimalDollars(NanoUsd);

impl ToJson for DecimalDollars {
    fn write(&self, out: &mut String) {
        out.push_str(&self.0.to_string());
    }
}

fn format_document(text: &str) -> Result<String, Error> {
    let tree = json::parse(text)
        .map_err(|e| Error::Corrupt(format!("a document cannot be written: {e}")))?;
    Ok(escape_json(&tree.to_text_pretty()).into_owned() + "\n")
}
