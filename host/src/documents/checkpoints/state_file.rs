//! Reads a `state.json` that a thread is to be made from: of version 1.1.0 as it is written here,
//! or of 1.0.0, the form of seed 002. Every field is checked: the file may come from anywhere.

mod rights;

use super::imported_messages::{EventList, MessageImport, list_images};
use crate::authority::{AuthorityError, open_regular, read_bounded};
use crate::blobs::BlobName;
use crate::thread_files::{CopyName, STATE_BYTES_MAX, apply_merge_patch, decompress};
use cap_std::fs::Dir;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// Name of the event that keeps what the file says of the thread that it was made of.
const NOTE_NAME: &str = "imported_state";

/// Fields that are kept as a note.
const NOTED_FIELDS: [&str; 15] = [
    "thread_id",
    "directive",
    "version",
    "saved_at",
    "parent_thread_id",
    "status",
    "suspend_reason",
    "suspend_metadata",
    "turn_number",
    "cost",
    "limits",
    "required_caps",
    "approvals",
    "history_version",
    "model",
];

/// An error of a file that is to be imported. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// It is no whole JSON object: it is torn, or no checkpoint.
    #[error("it is torn, or no checkpoint: {0}")]
    Torn(String),
    /// It is of a version that this program does not know.
    #[error("it is of version {0}, and this program reads 1.0.0 and 1.1.0")]
    Newer(String),
    /// A field is missing or wrong.
    #[error("{field} {problem}")]
    Field {
        /// Path of the field.
        field: String,
        /// A sentence about what is wrong with it.
        problem: String,
    },
    /// Its messages are not those that it was saved with.
    #[error("its messages were edited: they do not have the hash that it was saved with")]
    Edited,
    /// It is a merge patch, and the full copy that it is against cannot be read.
    #[error("it is a patch against {base}, which cannot be read: {problem}")]
    Base {
        /// Name of that file.
        base: String,
        /// The reason why it cannot be read.
        problem: String,
    },
}

pub(super) fn wrong(field: impl Into<String>, problem: impl Into<String>) -> StateFileError {
    StateFileError::Field {
        field: field.into(),
        problem: problem.into(),
    }
}

/// A checkpoint that was read from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct StateFile {
    fields: Map<String, Value>,
    messages: Vec<Value>,
}

/// The history that a thread is given which is made from a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportedHistory {
    /// Events for `history.append`, in the parts in which they are to be appended.
    pub batches: Vec<Vec<String>>,
    /// Snapshot for the first of these appends, as JSON: the state of the thread in the scope that
    /// lasts. `None` if the file has nothing in it.
    pub snapshot: Option<String>,
}

impl StateFile {
    /// Reads the file of this name: a `state.json`, or a copy of one, which may be compressed or a
    /// merge patch against the full copy beside it.
    ///
    /// # Errors
    /// If it cannot be read, or is no checkpoint that this program knows.
    pub fn read(dir: &Dir, name: &str) -> Result<Self, StateFileError> {
        let file = open_regular(dir, Path::new(name), name)?;
        let bytes = read_bounded(file, name, STATE_BYTES_MAX)?;
        Self::from_bytes(&bytes, name, dir)
    }

    /// As [`StateFile::read`], of bytes that were read already; `dir` has the copies beside it.
    ///
    /// # Errors
    /// As [`StateFile::read`].
    pub fn from_bytes(bytes: &[u8], name: &str, dir: &Dir) -> Result<Self, StateFileError> {
        let mut document = parse_json(bytes, name)?;
        if let Some(base) = CopyName::parse(name).and_then(|name| name.base) {
            let full = |compressed| CopyName {
                version: base,
                base: None,
                compressed,
            };
            let plain = full(false).file_name();
            let read = read_json(dir, &plain).or_else(|error| match error {
                StateFileError::Authority(error) if error.is_missing() => {
                    read_json(dir, &full(true).file_name())
                }
                error => Err(error),
            });
            let mut whole = read.map_err(|error| StateFileError::Base {
                base: plain,
                problem: error.to_string(),
            })?;
            apply_merge_patch(&mut whole, &document);
            document = whole;
        }
        Self::parse(document)
    }

    /// Checks a document.
    ///
    /// # Errors
    /// If it is no checkpoint that this program knows.
    pub fn parse(document: Value) -> Result<Self, StateFileError> {
        let Value::Object(mut fields) = document else {
            return Err(StateFileError::Torn("it is no JSON object".to_owned()));
        };
        check_version(&fields)?;
        for name in ["thread_id", "saved_at"] {
            if !fields.get(name).is_some_and(Value::is_string) {
                return Err(wrong(name, "must be there, and a text"));
            }
        }
        match fields.get("directive") {
            Some(Value::String(_) | Value::Null) => {}
            _ => return Err(wrong("directive", "must be there, and a text or null")),
        }
        check_kinds(&fields)?;
        let messages = match fields.remove("messages") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(messages)) => messages,
            Some(_) => return Err(wrong("messages", "must be a list")),
        };
        let file = Self { fields, messages };
        file.check_messages()?;
        Ok(file)
    }

    /// The name of its directive, if it is of one.
    pub fn directive(&self) -> Option<&str> {
        self.text("directive")
    }

    /// The id of the thread that it was made of.
    pub fn thread_id(&self) -> &str {
        self.text("thread_id").unwrap_or_default()
    }

    /// The status of that thread.
    pub fn status(&self) -> Option<&str> {
        self.text("status")
    }

    /// The version of the history that it is of, if it names one.
    pub fn history_version(&self) -> Option<u64> {
        self.fields.get("history_version").and_then(Value::as_u64)
    }

    /// The number of its messages.
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// The inputs of its directive, as JSON; `None` if there are none.
    pub fn inputs(&self) -> Option<String> {
        let inputs = self
            .fields
            .get("inputs")
            .filter(|inputs| inputs.is_object());
        inputs.map(Value::to_string)
    }

    /// Its capabilities.
    pub fn capabilities(&self) -> Vec<String> {
        self.texts("required_caps")
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let list = self.fields.get(name).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    /// Lists the images that its messages name, each once. A name that is none is left out here,
    /// and refused by [`StateFile::to_history`].
    pub fn images(&self) -> Vec<BlobName> {
        list_images(&self.messages)
    }

    /// Makes the history of a new thread. With `has_prompt` the thread has the prompt of its
    /// directive, and system messages are left out; else they open the conversation as a user's.
    /// `carried` are the images that are stored for the new thread; of others a text tells that
    /// they were left out.
    ///
    /// # Errors
    /// If a message has content that no history can hold.
    pub fn to_history(
        &self,
        has_prompt: bool,
        carried: &[BlobName],
    ) -> Result<ImportedHistory, StateFileError> {
        let mut events = EventList::default();
        events.push(self.note());
        let mut spoken = self
            .messages
            .iter()
            .filter(|message| role(message) != "system");
        let first = spoken.next().map(role);
        let system: Vec<&str> = (self.messages.iter())
            .filter(|message| role(message) == "system")
            .filter_map(|message| message["content"].as_str())
            .collect();
        let opening = match (has_prompt, first) {
            (false, _) if !system.is_empty() => Some(format!(
                "These are the instructions for this conversation:\n\n{}",
                system.join("\n\n")
            )),
            (_, Some("user") | None) => None,
            (true, Some(_)) => Some("Execute the directive.".to_owned()),
            (false, Some(_)) => Some("Go on with this conversation.".to_owned()),
        };
        if let Some(text) = opening {
            events.push(json!({"type": "message", "role": "user", "content": text}));
        }
        let mut import = MessageImport {
            events,
            calls: HashMap::new(),
            carried,
        };
        for (index, message) in self.messages.iter().enumerate() {
            let place = format!("messages[{index}]");
            import.push_message(&place, message)?;
        }
        let mut events = import.events;
        let partial = self.fields.get("partial_cognition");
        let text = partial.and_then(|partial| partial["text"].as_str());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            events.push(json!({"type": "partial", "text": text}));
        }
        Ok(ImportedHistory {
            batches: events.batches,
            snapshot: self.snapshot(),
        })
    }

    /// Returns the snapshot that makes the state of the new thread: as of a fork, the scope of the
    /// thread alone. Runs and calls of the file's thread do not go on in it.
    fn snapshot(&self) -> Option<String> {
        let scope = self.fields.get("state")?.get("thread")?;
        let is_empty = scope.as_object().is_some_and(Map::is_empty);
        (!is_empty).then(|| json!({"thread": scope}).to_string())
    }

    /// Returns the event that keeps what the file says of its thread: its cost is not spent again.
    fn note(&self) -> Value {
        let noted = NOTED_FIELDS.iter().filter_map(|name| {
            let value = self.fields.get(*name)?;
            Some(((*name).to_owned(), value.clone()))
        });
        json!({"type": "note", "name": NOTE_NAME, "body": noted.collect::<Map<_, _>>()})
    }

    /// Checks the roles and contents of the messages, and their hash where the file has one.
    fn check_messages(&self) -> Result<(), StateFileError> {
        for (index, message) in self.messages.iter().enumerate() {
            let place = format!("messages[{index}]");
            if !matches!(role(message), "system" | "user" | "assistant" | "tool") {
                let problem = "must be system, user, assistant or tool";
                return Err(wrong(format!("{place}.role"), problem));
            }
            let content = &message["content"];
            let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
            if !content.is_string() && !content.is_array() {
                return Err(wrong(
                    format!("{place}.content"),
                    "must be a text or a list of blocks",
                ));
            }
            if role(message) == "system" && !content.is_string() {
                return Err(wrong(format!("{place}.content"), "must be a text"));
            }
            let good = |block: &Value| block["type"].is_string();
            if let Some(bad) = blocks.iter().position(|block| !good(block)) {
                return Err(wrong(
                    format!("{place}.content[{bad}].type"),
                    "must be a text",
                ));
            }
        }
        let hash = self.text("messages_hash");
        let spoken = self
            .messages
            .iter()
            .filter(|message| role(message) != "system");
        match hash {
            Some(hash) if hash != rolling_hash(spoken) => Err(StateFileError::Edited),
            _ => Ok(()),
        }
    }
}

pub(super) fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

fn check_version(fields: &Map<String, Value>) -> Result<(), StateFileError> {
    match fields.get("version").and_then(Value::as_str) {
        Some("1.0.0" | "1.1.0") => Ok(()),
        Some(other) => Err(StateFileError::Newer(other.to_owned())),
        None => Err(wrong("version", "must be there, and a text such as 1.0.0")),
    }
}

/// Checks the kinds of optional fields that are read or kept.
fn check_kinds(fields: &Map<String, Value>) -> Result<(), StateFileError> {
    type IsGood = fn(&Value) -> bool;
    let kinds: [(&str, &str, IsGood); 12] = [
        ("inputs", "an object", Value::is_object),
        ("state", "an object whose scopes are objects", is_state),
        ("cost", "an object", Value::is_object),
        ("limits", "an object", Value::is_object),
        ("suspend_metadata", "an object", Value::is_object),
        ("partial_cognition", "an object", Value::is_object),
        ("status", "a text", Value::is_string),
        ("messages_hash", "a text", Value::is_string),
        ("suspend_reason", "a text", Value::is_string),
        ("required_caps", "a list of texts", is_text_list),
        ("approvals", "a list of texts", is_text_list),
        ("turn_number", "a whole number", Value::is_u64),
    ];
    for (name, kind, is_good) in kinds {
        let value = fields.get(name).filter(|value| !value.is_null());
        if value.is_some_and(|value| !is_good(value)) {
            return Err(wrong(name, format!("must be {kind}")));
        }
    }
    rights::check_caps(fields)
}

fn is_state(value: &Value) -> bool {
    let scopes = value.as_object();
    scopes.is_some_and(|scopes| scopes.values().all(Value::is_object))
}

fn is_text_list(value: &Value) -> bool {
    let list = value.as_array();
    list.is_some_and(|list| list.iter().all(Value::is_string))
}

/// Computes the rolling hash of messages, as `transcript.render` defines it.
fn rolling_hash<'a>(messages: impl Iterator<Item = &'a Value>) -> String {
    messages.fold(String::new(), |hash, message| {
        let text = provider_text(message);
        let mut hasher = Sha256::new();
        for part in [&hash, &text] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    })
}

/// Returns the JSON text of a message as a provider is sent it. Fields of blocks have the order in
/// which they stand in the file.
fn provider_text(message: &Value) -> String {
    let role = &message["role"];
    match &message["content"] {
        Value::String(text) => {
            let block = json!({"type": "text", "text": text});
            format!(r#"{{"role":{role},"content":[{block}]}}"#)
        }
        content => format!(r#"{{"role":{role},"content":{content}}}"#),
    }
}

fn read_json(dir: &Dir, name: &str) -> Result<Value, StateFileError> {
    let file = open_regular(dir, Path::new(name), name)?;
    let bytes = read_bounded(file, name, STATE_BYTES_MAX)?;
    parse_json(&bytes, name)
}

fn parse_json(bytes: &[u8], name: &str) -> Result<Value, StateFileError> {
    let torn = |error: io::Error| StateFileError::Torn(error.to_string());
    let parsed = match name.ends_with(".gz") {
        true => serde_json::from_slice(&decompress(bytes).map_err(torn)?),
        false => serde_json::from_slice(bytes),
    };
    parsed.map_err(|error| StateFileError::Torn(error.to_string()))
}

#[cfg(test)]
mod tests;
