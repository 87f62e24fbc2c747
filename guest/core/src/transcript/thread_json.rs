//! `thread.json`: the state of a thread, for people and other programs. Money is a decimal number
//! here, and hidden characters are escaped ([`threadkeep_units::printable`]).

use crate::error::Error;
use crate::json::{self, ObjectWriter, ToJson};
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
pub(super) struct DecimalDollars(pub NanoUsd);

impl ToJson for DecimalDollars {
    fn write(&self, out: &mut String) {
        out.push_str(&self.0.to_string());
    }
}

/// Formats the text of a document for people, with hidden characters escaped.
pub(super) fn format_document(text: &str) -> Result<String, Error> {
    let tree = json::parse(text)
        .map_err(|e| Error::corrupt(format!("a document cannot be written: {e}")))?;
    Ok(escape_json(&tree.to_text_pretty()).into_owned() + "\n")
}
