//! Events of a caller, to be appended without the runner. They are checked to the last field: a
//! history trusts its events for ever, and sends them to providers again and again.

use super::user_message::read_message;
use super::{BLOBS_MAX, Event, NoteEvent, StoredBlob, ToolResultState};
use crate::error::Error;
use crate::json::record;
use crate::json::{self, JsonError, JsonObject, JsonValue};
use crate::money::{NanoUsd, check_bill};
use crate::settings::{check_known_fields, check_tool_name};
use crate::state::find_excess_depth;

/// Most events of one append: a round of 32 calls with their results and the messages between them
/// fits several times.
pub const APPEND_EVENTS_MAX: usize = 256;
/// Most bytes of the events of one append, as the caller wrote them and as they are stored: like
/// the results of a round, they still fit an entry together with one message of the inbox.
pub const APPEND_BYTES_MAX: usize = 512 << 10;
/// Longest id that a model gives a call, in bytes; those of known providers have less than 50.
pub const CALL_ID_BYTES_MAX: usize = 128;

/// The types that may be appended, with the fields of each.
const TYPES: [(&str, &[&str]); 8] = [
    ("message", &["type", "role", "content", "id", "synthetic"]),
    ("assistant_text", &["type", "text"]),
    ("thinking", &["type", "text", "raw"]),
    ("tool_use", &["type", "name", "arguments", "id"]),
    (
        "tool_result",
        &[
            "type", "id", "version", "index", "name", "text", "failed", "state", "cost", "blocks",
        ],
    ),
    ("partial", &["type", "text"]),
    (
        "error",
        &["type", "kind", "code", "message", "attempt", "retry"],
    ),
    ("note", &["type", "name", "body"]),
];

/// Longest name of a note, in bytes.
const NOTE_NAME_BYTES_MAX: usize = 64;

/// One event to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendedEvent {
    /// An event that is stored as it is.
    Event(Event),
    /// A result, whose call is not looked up yet.
    Result(AppendedResult),
}

/// A result that names its call by the call's id or by its place, before the call is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedResult {
    /// Id of the call: the model's own, or the one that providers are sent.
    pub id: Option<String>,
    /// Version of the entry that holds the call.
    pub version: Option<u64>,
    /// Index of the call in it.
    pub index: Option<u32>,
    /// Name of the tool, if the caller repeats it.
    pub name: Option<String>,
    /// Text shown to the model.
    pub text: String,
    /// True if it failed.
    pub failed: bool,
    /// Outcome of the call.
    pub state: Option<ToolResultState>,
    /// Cost of the call itself.
    pub cost: NanoUsd,
    /// Images, and blobs of which the text shows a part.
    pub blocks: Vec<StoredBlob>,
}

record!(read AppendedResult {
    id, version, index, name, text, failed or default, state, cost or default, blocks or default
});

/// Reads the events of an append, each a JSON object.
pub fn parse_events(texts: &[String]) -> Result<Vec<AppendedEvent>, Error> {
    if texts.len() > APPEND_EVENTS_MAX {
        let problem = format!("holds more than {APPEND_EVENTS_MAX} events: append them in parts");
        return Err(Error::invalid("events", &texts.len().to_string(), problem));
    }
    check_append_bytes(texts.iter().map(String::len).sum())?;
    let place = |n| format!("events[{n}]");
    (0_usize..)
        .zip(texts)
        .map(|(n, text)| parse_event(&place(n), text))
        .collect()
}

/// Refuses more bytes than [`APPEND_BYTES_MAX`].
pub fn check_append_bytes(bytes: usize) -> Result<(), Error> {
    if bytes <= APPEND_BYTES_MAX {
        return Ok(());
    }
    let problem = format!("is more than {APPEND_BYTES_MAX} bytes: append it in parts");
    Err(Error::invalid("events", &bytes.to_string(), problem))
}

fn parse_event(place: &str, text: &str) -> Result<AppendedEvent, Error> {
    let Ok(JsonValue::Object(mut fields)) = json::parse(text) else {
        return Err(Error::invalid(place, text, "is not a JSON object"));
    };
    let kind = fields.get("type").and_then(JsonValue::as_str).unwrap_or("");
    let Some((kind, known)) = TYPES.iter().find(|(name, _)| *name == kind) else {
        return Err(not_appendable_error(place, kind));
    };
    check_known_fields(place, &fields, known)?;
    let twice = |name: &&str| fields.keys().filter(|other| other == name).count() > 1;
    if known.iter().any(twice) {
        return Err(Error::invalid(place, text, "has a field twice"));
    }
    match *kind {
        "message" => {
            fields.shift_remove("type");
            let message = read_message(place, JsonValue::Object(fields))?;
            Ok(AppendedEvent::Event(Event::Message(message)))
        }
        "tool_result" => Ok(AppendedEvent::Result(read_result(place, text, fields)?)),
        "tool_use" => read_call(place, text, fields),
        "note" => read_note(place, text, fields),
        _ => Ok(AppendedEvent::Event(read_stored_event(
            place, text, fields,
        )?)),
    }
}

/// Reads an event in its stored form.
fn read_stored_event(place: &str, text: &str, fields: JsonObject<'_>) -> Result<Event, Error> {
    json::read_value::<Event>(JsonValue::Object(fields))
        .map_err(|wrong| wrong_fields_error(place, text, &wrong))
}

fn wrong_fields_error(place: &str, text: &str, wrong: &JsonError) -> Error {
    Error::invalid(place, text, format!("is not what its type holds: {wrong}"))
}

fn read_call(place: &str, text: &str, mut fields: JsonObject<'_>) -> Result<AppendedEvent, Error> {
    if !fields.contains_key("id") {
        fields.insert("id", "");
    }
    let event = read_stored_event(place, text, fields)?;
    if let Event::ToolUse(call) = &event {
        check_tool_name(&format!("{place}.name"), &call.name)?;
        if call.id.len() > CALL_ID_BYTES_MAX {
            let problem = format!("is longer than {CALL_ID_BYTES_MAX} bytes");
            return Err(Error::invalid(format!("{place}.id"), &call.id, problem));
        }
    }
    Ok(AppendedEvent::Event(event))
}

fn read_note(place: &str, text: &str, fields: JsonObject<'_>) -> Result<AppendedEvent, Error> {
    let event = read_stored_event(place, text, fields)?;
    if let Event::Note(NoteEvent { name, body }) = &event {
        if let Some(problem) = find_excess_depth(body) {
            return Err(Error::invalid(format!("{place}.body"), "", problem));
        }
        let known = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
        if name.is_empty() || name.len() > NOTE_NAME_BYTES_MAX || !name.bytes().all(known) {
            let problem = "must be 1 to 64 of letters, digits, _, ., : and -";
            return Err(Error::invalid(format!("{place}.name"), name, problem));
        }
    }
    Ok(AppendedEvent::Event(event))
}

fn read_result(
    place: &str,
    text: &str,
    mut fields: JsonObject<'_>,
) -> Result<AppendedResult, Error> {
    let blocks = match fields.shift_remove("blocks") {
        None => Vec::new(),
        Some(JsonValue::Array(blocks)) if blocks.len() <= BLOBS_MAX => blocks,
        Some(_) => {
            let problem = format!("must be a list of at most {BLOBS_MAX} images and blobs");
            return Err(Error::invalid(format!("{place}.blocks"), "", problem));
        }
    };
    let parse = |(n, block)| StoredBlob::parse(&format!("{place}.blocks[{n}]"), block);
    let blocks = blocks
        .iter()
        .enumerate()
        .map(parse)
        .collect::<Result<_, _>>()?;
    let given = json::read_value::<AppendedResult>(JsonValue::Object(fields));
    let given = given.map_err(|wrong| wrong_fields_error(place, text, &wrong))?;
    let by_place = given.version.is_some() && given.index.is_some();
    let half = given.version.is_some() != given.index.is_some();
    if half || by_place == given.id.is_some() {
        let problem = "names its call by `id`, or by `version` and `index`: by one of them";
        return Err(Error::invalid(place, text, problem));
    }
    check_bill(&format!("{place}.cost"), given.cost.get())?;
    Ok(AppendedResult { blocks, ..given })
}

/// Returns the error for an event type that cannot be appended.
fn not_appendable_error(place: &str, kind: &str) -> Error {
    let place = format!("{place}.type");
    match kind {
        "result" => Error::invalid(
            place,
            kind,
            "usage and money are not appended by this version yet",
        ),
        "title" => Error::invalid(
            place,
            kind,
            "is not appended: a title is set with set-title",
        ),
        "suspended"
        | "resumed"
        | "cancelled"
        | "raised"
        | "decision"
        | "consent_asked"
        | "charged"
        | "usage_corrected"
        | "context_injected"
        | "context_limit_reached"
        | "thread_handoff"
        | "thread_resumed" => Error::invalid(
            place,
            kind,
            "is not appended: it is written by what does it",
        ),
        _ => {
            let names = TYPES.map(|(name, _)| name);
            let problem = format!("is not a type of event: {}", names.join(", "));
            Error::invalid_name(place, kind, &problem, &names)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn parse(text: &str) -> Result<AppendedEvent, Error> {
        parse_event("events[0]", text)
    }

    #[test]
    fn stores_what_is_given() {
        for (given, stored) in [
            (
                r#"{"type":"message","role":"user","content":"hi \u0000 漢🙂"}"#,
                concat!(
                    r#"{"type":"message","role":"user","content":[{"type":"text","#,
                    r#""text":"hi \u0000 漢🙂"}]}"#
                ),
            ),
            (
                concat!(
                    r#"{"content":[{"type":"text","text":"hi"}],"id":"m1","role":"user","#,
                    r#""type":"message"}"#
                ),
                concat!(
                    r#"{"type":"message","role":"user","content":[{"type":"text","text":"hi"}],"#,
                    r#""id":"m1"}"#
                ),
            ),
            (
                r#"{"type":"message","role":"assistant","content":"Hello!","synthetic":true}"#,
                concat!(
                    r#"{"type":"message","role":"assistant","content":[{"type":"text","#,
                    r#""text":"Hello!"}],"synthetic":true}"#
                ),
            ),
            (
                r#"{"type":"tool_use","name":"read","arguments":"{\"a\": 0.10"}"#,
                r#"{"type":"tool_use","name":"read","arguments":"{\"a\": 0.10","id":""}"#,
            ),
            (
                r#"{"type":"thinking","text":"hm","raw":"{\"signature\":\"x\"}"}"#,
                r#"{"type":"thinking","text":"hm","raw":"{\"signature\":\"x\"}"}"#,
            ),
            (
                r#"{"type":"note","name":"acme:step-1","body":[0.10,{"type":"message"}]}"#,
                r#"{"type":"note","name":"acme:step-1","body":[0.10,{"type":"message"}]}"#,
            ),
            (
                concat!(
                    r#"{"type":"error","kind":"transient","code":"http_503","message":"m","#,
                    r#""attempt":1}"#
                ),
                concat!(
                    r#"{"type":"error","kind":"transient","code":"http_503","message":"m","#,
                    r#""attempt":1}"#
                ),
            ),
        ] {
            let Ok(AppendedEvent::Event(event)) = parse(given) else {
                panic!("{given}: {:?}", parse(given));
            };
            assert_eq!(json::to_text(&event), stored);
        }
    }

    /// Each case: an event, the wrong field, and the nearest valid name.
    const REFUSED: [(&str, &str, Option<&str>); 30] = [
        ("", "", None),
        ("[]", "", None),
        (r#"{"role":"user","content":"hi"}"#, ".type", None),
        (
            r#"{"type":"mesage","role":"user","content":"hi"}"#,
            ".type",
            Some("message"),
        ),
        (r#"{"type":"result"}"#, ".type", None),
        (r#"{"type":"title","title":"t"}"#, ".type", None),
        (r#"{"type":"raised"}"#, ".type", None),
        (
            r#"{"type":"message","role":"user","contents":"hi"}"#,
            ".contents",
            Some("content"),
        ),
        (
            r#"{"type":"message","role":"robot","content":"hi"}"#,
            ".role",
            None,
        ),
        (
            r#"{"type":"message","role":"user","content":""}"#,
            ".content",
            None,
        ),
        (
            r#"{"type":"message","role":"user","content":" \n"}"#,
            ".content",
            None,
        ),
        (
            r#"{"type":"message","role":"user","content":"hi","synthetic":true}"#,
            ".synthetic",
            None,
        ),
        (
            r#"{"type":"message","role":"user","content":"hi","role":"user"}"#,
            "",
            None,
        ),
        (
            r#"{"type":"message","role":"user","content":[{"type":"image"}]}"#,
            ".content[0]",
            None,
        ),
        (r#"{"type":"assistant_text","text":7}"#, "", None),
        (r#"{"type":"note","name":"a b","body":1}"#, ".name", None),
        (r#"{"type":"note","name":"","body":1}"#, ".name", None),
        (r#"{"type":"note","name":"a"}"#, "", None),
        (
            r#"{"type":"note","name":"a","body":1,"role":"user"}"#,
            ".role",
            None,
        ),
        (
            r#"{"type":"tool_use","name":"read it","arguments":"{}"}"#,
            ".name",
            None,
        ),
        (
            r#"{"type":"tool_use","name":"","arguments":"{}"}"#,
            ".name",
            None,
        ),
        (
            r#"{"type":"tool_use","name":"read","arguments":{}}"#,
            "",
            None,
        ),
        (r#"{"type":"tool_result","text":"t"}"#, "", None),
        (r#"{"type":"tool_result","version":1,"text":"t"}"#, "", None),
        (
            r#"{"type":"tool_result","id":"x","version":1,"text":"t"}"#,
            "",
            None,
        ),
        (
            r#"{"type":"tool_result","id":"x","version":1,"index":0,"text":"t"}"#,
            "",
            None,
        ),
        (
            r#"{"type":"tool_result","id":"x","text":"t","cost":-1}"#,
            "",
            None,
        ),
        (
            r#"{"type":"tool_result","id":"x","text":"t","cost":1000000000000001}"#,
            ".cost",
            None,
        ),
        (
            r#"{"type":"tool_result","id":"x","text":"t","cost":18446744073709551615}"#,
            ".cost",
            None,
        ),
        (
            r#"{"type":"tool_result","id":"x","text":"t","state":"dnoe"}"#,
            "",
            None,
        ),
    ];

    #[test]
    fn refuses_by_place_and_names_the_nearest() {
        let long = format!(
            r#"{{"type":"tool_use","name":"r","arguments":"","id":"{}"}}"#,
            "x".repeat(CALL_ID_BYTES_MAX + 1)
        );
        for (given, field, near) in REFUSED.into_iter().chain([(long.as_str(), ".id", None)]) {
            match parse(given).map_err(Error::into_kind) {
                Err(ErrorKind::Invalid {
                    field: at, nearest, ..
                }) => {
                    assert_eq!(at, format!("events[0]{field}"), "{given}");
                    assert_eq!(nearest.as_deref(), near, "{given}");
                }
                other => panic!("{given}: {other:?}"),
            }
        }
    }

    #[test]
    fn takes_as_much_as_fits_an_entry_and_no_more() {
        let text = |bytes: usize| {
            let empty = r#"{"type":"partial","text":""}"#.len();
            format!(
                r#"{{"type":"partial","text":"{}"}}"#,
                "x".repeat(bytes - empty)
            )
        };
        let some = |n: usize| vec![r#"{"type":"partial","text":""}"#.to_owned(); n];
        for (events, fits) in [
            (vec![text(APPEND_BYTES_MAX)], true),
            (vec![text(APPEND_BYTES_MAX + 1)], false),
            (
                vec![text(APPEND_BYTES_MAX / 2), text(APPEND_BYTES_MAX / 2 + 1)],
                false,
            ),
            (some(APPEND_EVENTS_MAX), true),
            (some(APPEND_EVENTS_MAX + 1), false),
        ] {
            assert_eq!(parse_events(&events).is_ok(), fits, "{}", events.len());
        }
    }
}
