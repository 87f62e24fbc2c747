//! Compares `state.json` with the records.
//!
//! The checkpoint of the newest version is made anew: the file has the same text, but for the time
//! of the save. An older one is compared in what the history says of its version: who the thread
//! is, its state, and the messages, which also have the hash that stands in the file.

use super::state_file::StateFile;
use crate::authority::AuthorityError;
use crate::documents::{DocumentError, DocumentState, TenantFiles};
use crate::thread_files::{
    DocumentDirectory, DocumentRecords, DocumentedThread, STATE_BYTES_MAX, STATE_FILE,
    ThreadFileError,
};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use threadkeep_units::status::has_ended;

/// Time after which no save of a stopped thread is under way any more: ten attempts, with the
/// longest pauses between them, and the wait for another process.
const SAVE_TIME_MAX: Duration = Duration::from_secs(120);

/// Fields that every checkpoint of a version has alike, whenever it is made.
const LASTING_FIELDS: [&str; 6] = [
    "thread_id",
    "directive",
    "parent_thread_id",
    "inputs",
    "chain_id",
    "state",
];

/// The result of comparing `state.json` of a thread with its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::documents) struct CheckedCheckpoint {
    pub state: DocumentState,
    /// True if it is older than the thread, which has stopped, and no save is under way.
    pub is_overdue: bool,
}

/// Compares `state.json` in a thread's directory, which is locked, with the records.
pub(in crate::documents) fn check_checkpoint(
    files: &TenantFiles<'_>,
    place: &DocumentDirectory,
) -> Result<CheckedCheckpoint, DocumentError> {
    let checked = |state| CheckedCheckpoint {
        state,
        is_overdue: false,
    };
    let found = match place.read(STATE_FILE, STATE_BYTES_MAX) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(checked(DocumentState::Missing)),
        Err(ThreadFileError::Authority(
            AuthorityError::TooLarge { .. } | AuthorityError::HardLink { .. },
        )) => return Ok(checked(DocumentState::Other)),
        Err(error) => return Err(error.into()),
    };
    let Some(file) = SavedText::read(found) else {
        return Ok(checked(DocumentState::Other));
    };
    // The file was read first: the records can only be newer.
    let (newest, version) = files.render_checkpoint(place.id(), None)?;
    let is_good = match file.version {
        saved if saved > version => false,
        saved if saved == version => file.equals_newest(&newest),
        saved => {
            let (then, _) = files.render_checkpoint(place.id(), Some(saved))?;
            file.agrees_with(&then)
        }
    };
    let state = match is_good {
        false => DocumentState::Other,
        true if file.version == version => DocumentState::Current,
        true => DocumentState::Stale(file.version),
    };
    let thread = files.records.read_thread(place.id())?;
    let now = files.records.now();
    let is_overdue = matches!(state, DocumentState::Stale(_)) && has_long_stopped(&thread, now);
    Ok(CheckedCheckpoint { state, is_overdue })
}

fn has_long_stopped(thread: &DocumentedThread, now: SystemTime) -> bool {
    let seconds = u64::try_from(thread.updated.0).unwrap_or(0);
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let ago = since.and_then(|since| now.duration_since(since).ok());
    (thread.status == "suspended" || has_ended(&thread.status))
        && ago.is_some_and(|ago| ago > SAVE_TIME_MAX)
}

/// A `state.json` that is a checkpoint by its form.
struct SavedText {
    text: String,
    value: Value,
    version: u64,
}

impl SavedText {
    /// Reads a file; `None` if it is torn, newer, of another form, or its messages do not have the
    /// hash that it names.
    fn read(bytes: Vec<u8>) -> Option<Self> {
        let text = String::from_utf8(bytes).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let version = StateFile::parse(value.clone()).ok()?.history_version()?;
        Some(Self {
            text,
            value,
            version,
        })
    }

    /// Returns true if it is what was made of the same version now, but for the time of the save
    /// and, while a step is under way, the text of the reply so far.
    fn equals_newest(&self, made: &str) -> bool {
        let Ok(mut made_value) = serde_json::from_str::<Value>(made) else {
            return false;
        };
        if made_value["status"] == "running" {
            let mut saved = self.value.clone();
            for field in ["saved_at", "partial_cognition"] {
                saved[field] = Value::Null;
                made_value[field] = Value::Null;
            }
            return saved == made_value;
        }
        let line = |value: &Value| format!("\n  \"saved_at\": {},\n", value["saved_at"]);
        made.replacen(&line(&made_value), &line(&self.value), 1) == self.text
    }

    /// Returns true if it agrees with what was made of its version later. A prompt that was fixed
    /// since is in the later one alone.
    fn agrees_with(&self, made: &str) -> bool {
        let Ok(made) = serde_json::from_str::<Value>(made) else {
            return false;
        };
        let lasting = LASTING_FIELDS.iter();
        let mut lasting = lasting.map(|field| (&self.value[*field], &made[*field]));
        let spoken = |value: &Value| -> Vec<Value> {
            let messages = value["messages"].as_array().into_iter().flatten();
            let spoken = messages.filter(|message| message["role"] != "system");
            spoken.cloned().collect()
        };
        lasting.all(|(saved, made)| saved == made) && spoken(&self.value) == spoken(&made)
    }
}
