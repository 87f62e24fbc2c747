//! `state.json`: a thread as it goes on, in the shape that seed 002 gives it, version 1.1.0. Its
//! JSON Schema is `docs/state.schema.json`.
//!
//! The text is made in parts, so that its size bounds nothing: the [`checkpoint_head`], the
//! messages of the live window one after the other, the [`CHECKPOINT_END`]. Money and times are
//! decimal numbers here, and hidden characters are escaped ([`threadkeep_units::printable`]).

use super::thread_json::{DecimalDollars, format_document};
use crate::error::{Error, cut};
use crate::estimate::estimate_tokens;
use crate::history::{Entry, Event, call_id, document_messages};
use crate::json::{self, JsonObject, JsonValue, ObjectWriter, ToJson};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::plan::LoadedThread;
use crate::state::StateDocument;
use crate::thread::{Head, RoundCall, StatusCause, ThreadStatus, UsageCounters};
use threadkeep_units::printable::escape_json;

/// Version of the form.
const FORM_VERSION: &str = "1.1.0";

/// Codes of causes that seed 002 calls limits, and the sixth cap.
const LIMIT_CODES: [&str; 6] = [
    "turns_exceeded",
    "tokens_exceeded",
    "spend_exceeded",
    "spawns_exceeded",
    "depth_exceeded",
    "duration_exceeded",
];

/// Most bytes of the arguments of a call that waits for a decision. The messages have all of them.
const ARGUMENTS_BYTES_MAX: usize = 500;

/// The text after the last message.
pub const CHECKPOINT_END: &str = "\n  ]\n}\n";

/// The records that a checkpoint is made from, but for its messages.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointSource<'a> {
    /// The records of the thread, its head at the version of the checkpoint.
    pub loaded: &'a LoadedThread,
    /// False for an earlier version than the newest: no entry tells status and figures, which are
    /// null then.
    pub newest: bool,
    /// Time of the checkpoint, RFC 3339.
    pub saved_at: &'a str,
    /// The prompt of the thread, once it is pinned.
    pub prompt: Option<&'a str>,
    /// Patterns of the calls that need consent, but for those of the operator.
    pub approvals: &'a [String],
    /// The text of a reply that was interrupted, if nothing has answered the request since.
    pub partial: Option<&'a PartialReply>,
    /// The entry with the calls of a suspended thread that wait for decisions, if some do.
    pub round: Option<&'a Entry>,
    /// The state of the thread at the version of the checkpoint, if there is anything in it.
    pub state: Option<&'a StateDocument>,
}

/// The text of a reply that is not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialReply {
    /// The text so far.
    pub text: String,
    /// The most tokens that the reply could have had, where they are known.
    pub output_max: Option<u64>,
}

impl PartialReply {
    /// Tokens of the text so far in hundredths of their maximum, at most 100; `None` where that is
    /// unknown.
    fn percentage(&self) -> Option<u64> {
        let most = self.output_max.filter(|most| *most > 0)?;
        let tokens = estimate_tokens(&self.text);
        Some((tokens.saturating_mul(100) / most).min(100))
    }
}

impl ToJson for PartialReply {
    fn write(&self, out: &mut String) {
        ObjectWriter::new(out)
            .add("text", &self.text)
            .add("is_partial", &true)
            .add("completion_percentage", &self.percentage())
            .finish();
    }
}

/// Renders a checkpoint up to its messages, of which a system message with the prompt is the first.
/// Returns whether there is one: then the first message that follows needs a comma before it.
///
/// # Errors
/// `ErrorKind::Corrupt` for records that cannot be written as JSON.
pub fn checkpoint_head(source: CheckpointSource<'_>) -> Result<(String, bool), Error> {
    let (thread, head) = (&source.loaded.thread.value, &source.loaded.head.value);
    let inputs = json::parse(&thread.inputs).unwrap_or(JsonValue::Object(JsonObject::new()));
    let now = source.newest.then_some(head);
    let stopped = now.filter(|head| head.status == ThreadStatus::Suspended);
    let cause = stopped.and_then(|head| head.cause.as_ref());
    let waits = now.is_some_and(|head| head.status == ThreadStatus::Waiting);
    let reason = cause.map(|cause| cause.reason.as_str());
    let metadata = cause.map(|cause| SuspendMetadata {
        cause,
        waiting: find_undecided_calls(head, source.round),
    });
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add("thread_id", &thread.id)
        .add("directive", &thread.directive)
        .add("version", FORM_VERSION)
        .add("saved_at", source.saved_at)
        .add("parent_thread_id", &thread.parent)
        .add("inputs", &inputs)
        .add("turn_number", &now.map(|head| head.counters.turns))
        .add("cost", &now.map(|head| CostTotals(&head.counters)))
        .add("limits", &CapTotals(&head.limits))
        .add("status", &now.map(|head| head.status))
        .add("suspend_reason", &reason.or(waits.then_some("waiting")))
        .add("suspend_metadata", &metadata)
        .add("hooks", &Vec::<String>::new())
        .add("required_caps", &thread.capabilities)
        .add("approvals", source.approvals)
        .add("partial_cognition", &source.partial)
        .add("history_version", &head.version)
        .add("model", &thread.model)
        .add("chain_id", &thread.chain)
        .add("state", &source.state)
        .add("messages_hash", &now.map(|head| &head.prefix))
        .finish();
    let mut text = format_document(&text)?;
    // The list of messages is the last field: the object stays open until its end.
    text.truncate(text.trim_end().len() - 1);
    text.truncate(text.trim_end().len());
    text.push_str(",\n  \"messages\": [");
    let prompt = source.prompt.filter(|prompt| !prompt.is_empty());
    if let Some(prompt) = prompt {
        let mut message = String::new();
        ObjectWriter::new(&mut message)
            .add("role", "system")
            .add("content", prompt)
            .finish();
        push_message(&mut text, &message, true);
    }
    Ok((text, prompt.is_some()))
}

/// Appends the messages that an entry adds to the live window to the text of a checkpoint.
/// `is_first` is true while the list has none.
pub fn push_checkpoint_messages(text: &mut String, entry: &Entry, is_first: &mut bool) {
    for message in document_messages(entry) {
        push_message(text, &message, *is_first);
        *is_first = false;
    }
}

fn push_message(text: &mut String, message: &str, is_first: bool) {
    text.push_str(if is_first { "\n    " } else { ",\n    " });
    text.push_str(&escape_json(message));
}

struct CostTotals<'a>(&'a UsageCounters);

impl ToJson for CostTotals<'_> {
    fn write(&self, out: &mut String) {
        let Self(used) = self;
        ObjectWriter::new(out)
            .add("turns", &used.turns)
            .add("tokens", &TokenTotals(used))
            .add("spend", &DecimalDollars(used.spend))
            .add("duration_seconds", &DecimalSeconds(used.duration))
            .finish();
    }
}

struct TokenTotals<'a>(&'a UsageCounters);

impl ToJson for TokenTotals<'_> {
    fn write(&self, out: &mut String) {
        let Self(used) = self;
        ObjectWriter::new(out)
            .add("input_tokens", &used.usage.context())
            .add("output_tokens", &used.usage.output)
            .finish();
    }
}

struct CapTotals<'a>(&'a ThreadCaps);

impl ToJson for CapTotals<'_> {
    fn write(&self, out: &mut String) {
        let Self(limits) = self;
        ObjectWriter::new(out)
            .add("spend", &limits.spend.map(DecimalDollars))
            .add("turns", &limits.turns)
            .add("tokens", &limits.tokens)
            .add("spawns", &limits.spawns)
            .add("depth", &limits.depth)
            .add("duration_seconds", &limits.duration.map(DecimalSeconds))
            .finish();
    }
}

/// The cause for which a thread is suspended, with the cap that it has reached, if it has, and the
/// calls that wait for decisions.
struct SuspendMetadata<'a> {
    cause: &'a StatusCause,
    waiting: Vec<UndecidedCall<'a>>,
}

impl ToJson for SuspendMetadata<'_> {
    fn write(&self, out: &mut String) {
        let Self { cause, waiting } = self;
        let mut fields = ObjectWriter::new(out);
        if LIMIT_CODES.contains(&cause.code.as_str()) {
            fields
                .add("limit_code", &cause.code)
                .add("current_value", &CauseNumber(cause, cause.value))
                .add("current_max", &CauseNumber(cause, cause.maximum));
        }
        fields
            .add("code", &cause.code)
            .add("message", &cause.message);
        if !waiting.is_empty() {
            fields.add("calls", waiting);
        }
        fields.finish();
    }
}

/// A call that waits for a decision, and the entry that holds it.
struct UndecidedCall<'a>(&'a RoundCall, &'a Entry);

impl ToJson for UndecidedCall<'_> {
    fn write(&self, out: &mut String) {
        let Self(call, entry) = self;
        let (name, arguments) = match entry.events.get(call.index as usize) {
            Some(Event::ToolUse(used)) => (used.name.as_str(), used.arguments.as_str()),
            _ => ("", ""),
        };
        ObjectWriter::new(out)
            .add("id", &call_id(entry.version, call.index))
            .add("name", name)
            .add("arguments", cut(arguments, ARGUMENTS_BYTES_MAX))
            .add("since", &entry.time.rfc3339())
            .finish();
    }
}

fn find_undecided_calls<'a>(head: &'a Head, round: Option<&'a Entry>) -> Vec<UndecidedCall<'a>> {
    let version = head.round.as_ref().map(|round| round.version);
    let entry = round.filter(|entry| Some(entry.version) == version);
    let calls = entry.into_iter().flat_map(|entry| {
        let undecided = head.undecided_calls();
        undecided.map(move |call| UndecidedCall(call, entry))
    });
    calls.collect()
}

/// A number of a cause in the unit of documents: dollars, seconds, or a count.
struct CauseNumber<'a>(&'a StatusCause, Option<u64>);

impl ToJson for CauseNumber<'_> {
    fn write(&self, out: &mut String) {
        let Self(cause, number) = self;
        if cause.has_money_values() {
            number.map(NanoUsd::new).map(DecimalDollars).write(out);
        } else if cause.code == "duration_exceeded" {
            number.map(DecimalSeconds).write(out);
        } else {
            number.write(out);
        }
    }
}

/// Milliseconds as a JSON number of seconds.
struct DecimalSeconds(u64);

impl ToJson for DecimalSeconds {
    fn write(&self, out: &mut String) {
        let Self(millis) = self;
        let text = format!("{}.{:03}", millis / 1_000, millis % 1_000);
        out.push_str(text.trim_end_matches('0').trim_end_matches('.'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_without_idle_digits() {
        for (millis, seconds) in [
            (0, "0"),
            (7, "0.007"),
            (45_500, "45.5"),
            (100_000, "100"),
            (u64::MAX, "18446744073709551.615"),
        ] {
            assert_eq!(json::to_text(&DecimalSeconds(millis)), seconds);
        }
    }

    #[test]
    fn percentage_is_of_the_most_that_the_reply_could_have_had() {
        let text = "x".repeat(400);
        for (output_max, percentage) in [
            (Some(1_000), Some(10)),
            (Some(50), Some(100)),
            (Some(0), None),
            (None, None),
        ] {
            let text = text.clone();
            assert_eq!(PartialReply { text, output_max }.percentage(), percentage);
        }
    }

    #[test]
    fn numbers_of_a_cause_are_in_units_of_documents() {
        for (reason, code, told) in [
            (
                "limit",
                "turns_exceeded",
                r#""limit_code":"turns_exceeded","current_value":1500,"current_max":1000,"#,
            ),
            (
                "budget",
                "spend_exceeded",
                concat!(
                    r#""limit_code":"spend_exceeded","current_value":0.0000015,"#,
                    r#""current_max":0.000001,"#
                ),
            ),
            (
                "limit",
                "duration_exceeded",
                r#""limit_code":"duration_exceeded","current_value":1.5,"current_max":1,"#,
            ),
            ("limit", "store_full", ""),
        ] {
            let cause = StatusCause::with_bound(reason, code, "why", 1_500, 1_000);
            let metadata = SuspendMetadata {
                cause: &cause,
                waiting: Vec::new(),
            };
            assert_eq!(
                json::to_text(&metadata),
                format!(r#"{{{told}"code":"{code}","message":"why"}}"#)
            );
        }
    }
}
