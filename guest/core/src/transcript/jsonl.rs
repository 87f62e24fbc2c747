//! `transcript.jsonl`: line 1 is the manifest, padded so that it can be rewritten in place; each
//! line after it is one event.

use crate::error::Error;
use crate::history::{ContextLimitReached, Entry, Event, Message, SuspendedEvent, call_id};
use crate::json::{self, JsonNumber, JsonObject, JsonValue};
use crate::money::NanoUsd;
use crate::plan::LoadedThread;
use crate::time::UnixTime;
use threadkeep_units::printable::escape_json;

/// Bytes of the manifest line with its line feed.
pub const MANIFEST_BYTES: usize = 1_024;
/// Most bytes of JSON that the manifest keeps of a title, so that the line always fits.
const MANIFEST_TITLE_BYTES_MAX: usize = 200;

/// Renders the manifest line: padded with spaces to [`MANIFEST_BYTES`], the line feed included.
/// `version` is the version that it was made from. Fields that do not fit are left out: the
/// provider's session first, then the title, the task and the links beside it.
pub fn manifest(loaded: &LoadedThread) -> Result<String, Error> {
    let mut fields = manifest_fields(loaded);
    let mut line = to_line_text(fields.clone());
    for name in [
        "sessionId",
        "title",
        "taskId",
        "continuationOf",
        "continuationThreadId",
    ] {
        if line.len() < MANIFEST_BYTES {
            break;
        }
        fields.shift_remove(name);
        line = to_line_text(fields.clone());
    }
    if line.len() >= MANIFEST_BYTES {
        return Err(Error::corrupt(format!(
            "the manifest of {} does not fit its line",
            loaded.thread.value.id
        )));
    }
    // The padding counts bytes: a width in a format string counts characters.
    line.push_str(&" ".repeat(MANIFEST_BYTES - 1 - line.len()));
    line.push('\n');
    Ok(line)
}

/// Writes an object as a line of the document, with hidden characters escaped.
fn to_line_text(fields: JsonObject<'_>) -> String {
    escape_json(&JsonValue::Object(fields).to_string()).into_owned()
}

fn manifest_fields(loaded: &LoadedThread) -> JsonObject<'_> {
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    let title = thread
        .title
        .as_deref()
        .map(|title| crate::history::cut_escaped(title, MANIFEST_TITLE_BYTES_MAX));
    let mut fields = JsonObject::new();
    fields.insert("agentId", thread.agent.as_deref().unwrap_or("default"));
    for (name, value) in [
        ("sessionId", head.session.as_deref()),
        ("taskId", thread.task.as_deref()),
        ("title", title),
        ("continuationOf", thread.previous.as_deref()),
        ("continuationThreadId", thread.next.as_deref()),
    ] {
        if let Some(value) = value {
            fields.insert(name, value);
        }
    }
    fields.insert("createdAt", thread.created.rfc3339());
    fields.insert("updatedAt", head.updated.rfc3339());
    fields.insert("threadId", thread.id.as_str());
    fields.insert("version", head.version);
    fields
}

/// Renders the lines of an entry's events: each is the stored event, with the fields that older
/// readers expect (`text`, `input`, `timestamp`).
///
/// Every amount of money is decimal text in US dollars, as in all JSON that people and programs
/// read. A call and its result both carry `callId`, the id that providers are sent.
pub fn jsonl(entry: &Entry) -> Result<String, Error> {
    let mut lines = String::new();
    for (index, event) in entry.events.iter().enumerate() {
        lines.push_str(&event_line(entry.version, index, entry.time, event)?);
        lines.push('\n');
    }
    Ok(lines)
}

fn event_line(version: u64, index: usize, time: UnixTime, event: &Event) -> Result<String, Error> {
    let stored = json::to_text(event);
    let Ok(JsonValue::Object(mut fields)) = json::parse(&stored) else {
        return Err(Error::corrupt("an event is not an object"));
    };
    match event {
        Event::Message(message) => {
            fields.insert("role", message.role.as_str());
            fields.swap_remove("content");
            fields.insert("text", message.joined_text());
            insert_images(&mut fields, message);
        }
        Event::ToolUse(call) => {
            fields.swap_remove("arguments");
            let input = json::parse(&call.arguments).unwrap_or(JsonValue::from(&*call.arguments));
            fields.insert("input", input);
            fields.insert("callId", call_id(version, event_index(index)));
        }
        Event::ToolResult(result) => {
            fields.insert("callId", call_id(result.version, result.index));
            fields.insert("cost", result.cost.to_string());
        }
        Event::Decision(decision) => {
            fields.insert("callId", call_id(decision.version, decision.index));
        }
        Event::ConsentAsked(asked) => {
            fields.insert("callId", call_id(asked.version, asked.index));
            fields.insert("cost", asked.cost.to_string());
        }
        Event::UsageCorrected(corrected) => {
            fields.insert("charged", corrected.charged.to_string());
            fields.insert("spend", corrected.spend.to_string());
        }
        Event::Raised(raised) => {
            insert_amounts(&mut fields, "limits", &[("spend", raised.limits.spend)]);
        }
        Event::Suspended(SuspendedEvent { cause }) if cause.has_money_values() => {
            let amounts = [
                ("value", cause.value.map(NanoUsd::new)),
                ("maximum", cause.maximum.map(NanoUsd::new)),
            ];
            insert_amounts(&mut fields, "cause", &amounts);
        }
        Event::Result(result) => {
            fields.insert("cost", result.spend.to_string());
            fields.insert("durationMs", result.duration);
            fields.insert("turns", 1);
            fields.insert("inputTokens", result.usage.context());
            fields.insert("outputTokens", result.usage.output);
            fields.insert("cacheReadTokens", result.usage.read);
            for name in ["usage", "spend", "duration"] {
                fields.swap_remove(name);
            }
        }
        Event::ContextLimitReached(reached) => insert_ratio(&mut fields, reached),
        Event::Charged(charge) => {
            fields.insert("spend", charge.spend.to_string());
            fields.insert("most", charge.most.to_string());
        }
        _ => {}
    }
    fields.insert("timestamp", time.rfc3339());
    let place = vec![JsonValue::from(version), JsonValue::from(index as u64)];
    fields.insert("event", JsonValue::Array(place));
    Ok(to_line_text(fields))
}

/// Adds the images of a message, whose blocks become one text.
fn insert_images(fields: &mut JsonObject<'_>, message: &Message) {
    let images = message.images().map(json::to_text);
    let images: Vec<_> = images
        .filter_map(|image| json::parse(&image).ok().map(JsonValue::into_owned))
        .collect();
    if !images.is_empty() {
        fields.insert("images", JsonValue::Array(images));
    }
}

/// Returns the index of an event in its entry, which has far fewer events than this type counts.
fn event_index(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Replaces the ratio in parts per million by a decimal number.
fn insert_ratio(fields: &mut JsonObject<'_>, reached: &ContextLimitReached) {
    if let Some(ratio) = JsonNumber::parse(&reached.ratio_text()) {
        fields.insert("usage_ratio", JsonValue::Number(ratio));
    }
}

/// Replaces amounts in the object of this field by decimal text. Amounts that are `None` stay null.
fn insert_amounts(fields: &mut JsonObject<'_>, name: &'static str, amounts: &[AmountField]) {
    let Some(JsonValue::Object(mut inside)) = fields.get(name).cloned() else {
        return;
    };
    for (amount_name, amount) in amounts {
        if let Some(amount) = amount {
            inside.insert(*amount_name, amount.to_string());
        }
    }
    fields.insert(name, JsonValue::Object(inside));
}

/// A field and the amount that it holds.
type AmountField = (&'static str, Option<NanoUsd>);

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `result` gave its cost as decimal text; `tool_result`, `usage_corrected`, `raised`
    /// and a suspension for want of money gave theirs as nano-USD. Cause: the stored text was
    /// copied. Fix: one unit. Kind: every event that holds money.
    #[test]
    fn every_amount_is_decimal_text() {
        for (stored, shown) in [
            (
                concat!(
                    r#"{"type":"tool_result","version":2,"index":1,"name":"n","text":"t","#,
                    r#""failed":false,"state":"done","cost":310000}"#
                ),
                r#""cost":"0.00031""#,
            ),
            (
                r#"{"type":"charged","version":2,"spend":5,"most":1000000000}"#,
                r#""spend":"0.000000005","most":"1.00""#,
            ),
            (
                concat!(
                    r#"{"type":"usage_corrected","version":2,"charged":1000000000,"spend":5,"#,
                    r#""usage":{"input":1,"output":2,"read":3,"write":4,"reasoning":5}}"#
                ),
                r#""charged":"1.00","spend":"0.000000005""#,
            ),
            (
                concat!(
                    r#"{"type":"raised","limits":{"turns":null,"tokens":null,"spend":250000000,"#,
                    r#""spawns":null,"depth":null,"duration":null}}"#
                ),
                r#""spend":"0.25""#,
            ),
            (
                concat!(
                    r#"{"type":"raised","limits":{"turns":7,"tokens":null,"spend":null,"#,
                    r#""spawns":null,"depth":null,"duration":null}}"#
                ),
                r#""turns":7,"tokens":null,"spend":null"#,
            ),
            (
                concat!(
                    r#"{"type":"suspended","cause":{"reason":"budget","code":"spend_exceeded","#,
                    r#""message":"m","value":2000000000,"maximum":1000000000}}"#
                ),
                r#""value":"2.00","maximum":"1.00""#,
            ),
            (
                concat!(
                    r#"{"type":"suspended","cause":{"reason":"limit","code":"turns_exceeded","#,
                    r#""message":"m","value":25,"maximum":25}}"#
                ),
                r#""value":25,"maximum":25"#,
            ),
        ] {
            let event: Event = json::read(stored).unwrap();
            let line = event_line(3, 0, UnixTime::default(), &event).unwrap();
            assert!(line.contains(shown), "{shown} is not in {line}");
        }
    }

    /// The seed's reader takes the ratio as a number, and finds the next link by its id.
    #[test]
    fn links_are_told_in_the_seeds_form() {
        for (stored, shown) in [
            (
                concat!(
                    r#"{"type":"context_limit_reached","usage_ratio":912750,"tokens_used":3651,"#,
                    r#""tokens_limit":4000}"#
                ),
                r#""usage_ratio":0.91275,"tokens_used":3651,"tokens_limit":4000"#,
            ),
            (
                concat!(
                    r#"{"type":"thread_handoff","new_thread_id":"t-2","trailing_turns":8,"#,
                    r#""summary_generated":true,"summary_tokens":900}"#
                ),
                r#""type":"thread_handoff","new_thread_id":"t-2","trailing_turns":8"#,
            ),
            (
                r#"{"type":"context_injected","role":"user","text":"t"}"#,
                r#""role":"user","text":"t""#,
            ),
        ] {
            let event: Event = json::read(stored).unwrap();
            let line = event_line(3, 0, UnixTime::default(), &event).unwrap();
            assert!(line.contains(shown), "{shown} is not in {line}");
        }
    }

    /// Symptom: nothing in the lines told which call a result belongs to. Fix: both name the call.
    #[test]
    fn a_call_and_its_result_carry_the_same_id() {
        let call = r#"{"type":"tool_use","name":"n","arguments":"{}","id":"toolu_9"}"#;
        let result = concat!(
            r#"{"type":"tool_result","version":2,"index":1,"name":"n","text":"t","failed":false,"#,
            r#""state":"done"}"#
        );
        for (stored, version, index) in [(call, 2, 1), (result, 3, 0)] {
            let event: Event = json::read(stored).unwrap();
            let line = event_line(version, index, UnixTime::default(), &event).unwrap();
            assert!(line.contains(r#""callId":"call_2_1""#), "{line}");
        }
    }
}
