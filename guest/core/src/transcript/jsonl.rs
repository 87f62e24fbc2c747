//! `transcript.jsonl`: line 1 the manifest, padded so that it can be rewritten in place, then one event a line.

use crate::error::Error;
use crate::history::{Entry, Event, Role};
use crate::json::{self, Map, Value};
use crate::plan::Loaded;
use crate::printable::escape_json;
use crate::time::Instant;

/// Bytes of the manifest line with its line feed.
pub const MANIFEST_BYTES: usize = 1_024;
/// A title is cut to this many bytes of JSON in the manifest, so that the line always fits.
const MANIFEST_TITLE_BYTES_MAX: usize = 200;

/// The manifest line: padded with spaces to [`MANIFEST_BYTES`], the line feed included. `version` is the version that
/// it was made from. What has no room is left out, the provider's session first, then the title and the task.
pub fn manifest(loaded: &Loaded) -> Result<String, Error> {
    let mut fields = manifest_fields(loaded);
    let mut line = written(fields.clone());
    for name in ["sessionId", "title", "taskId"] {
        if line.len() < MANIFEST_BYTES {
            break;
        }
        fields.shift_remove(name);
        line = written(fields.clone());
    }
    if line.len() >= MANIFEST_BYTES {
        return Err(Error::Corrupt(format!(
            "the manifest of {} does not fit its line",
            loaded.thread.value.id
        )));
    }
    // Padded by bytes: a width in a format counts characters.
    line.push_str(&" ".repeat(MANIFEST_BYTES - 1 - line.len()));
    line.push('\n');
    Ok(line)
}

/// An object as a line of the document: what a reader would not see is escaped.
fn written(fields: Map<'_>) -> String {
    escape_json(&Value::Object(fields).to_string()).into_owned()
}

fn manifest_fields(loaded: &Loaded) -> Map<'_> {
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    let title = thread
        .title
        .as_deref()
        .map(|title| crate::history::cut_escaped(title, MANIFEST_TITLE_BYTES_MAX));
    let mut fields = Map::new();
    fields.insert("agentId", thread.agent.as_deref().unwrap_or("default"));
    for (name, value) in [
        ("sessionId", head.session.as_deref()),
        ("taskId", thread.task.as_deref()),
        ("title", title),
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

/// The lines of an entry's events: the stored event, with what older readers expect (`text`, `input`, `timestamp`).
pub fn jsonl(entry: &Entry) -> Result<String, Error> {
    let mut lines = String::new();
    for (index, event) in entry.events.iter().enumerate() {
        lines.push_str(&line(entry.version, index, entry.time, event)?);
        lines.push('\n');
    }
    Ok(lines)
}

fn line(version: u64, index: usize, time: Instant, event: &Event) -> Result<String, Error> {
    let stored = json::text(event);
    let Ok(Value::Object(mut fields)) = json::parse(&stored) else {
        return Err(Error::Corrupt("an event is not an object".into()));
    };
    match event {
        Event::Message(message) => {
            let role = if message.role == Role::User {
                "user"
            } else {
                "assistant"
            };
            fields.insert("role", role);
            fields.swap_remove("content");
            fields.insert("text", message.joined());
        }
        Event::ToolUse(call) => {
            fields.swap_remove("arguments");
            let input = json::parse(&call.arguments).unwrap_or(Value::from(&*call.arguments));
            fields.insert("input", input);
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
        _ => {}
    }
    fields.insert("timestamp", time.rfc3339());
    fields.insert(
        "event",
        Value::Array(vec![Value::from(version), Value::from(index as u64)]),
    );
    Ok(written(fields))
}
