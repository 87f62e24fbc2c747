//! Conversions between WIT and core for the interfaces `history` and `transcript`.

use super::{exported, instant, thread, types};
use crate::service::Error;
use crate::service::history::{AppendOutcome, StoredEntry};
use crate::service::transcript::DocumentPiece;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::Entry;
use threadkeep_core::json;
use threadkeep_core::plan::LoadedThread;

/// Writes the version that the next page begins after as a cursor.
pub fn cursor(version: Option<u64>) -> Option<String> {
    version.map(|version| version.to_string())
}

/// Returns the events of a change set. Its other parts are not built yet.
pub fn change_events(change: exported::history::ChangeSet) -> Result<Vec<String>, Error> {
    let parts = [
        ("change.patches", !change.patches.is_empty()),
        ("change.operations", !change.operations.is_empty()),
        ("change.snapshot", change.snapshot.is_some()),
    ];
    match parts.into_iter().find(|(_, given)| *given) {
        None => Ok(change.events),
        Some((field, _)) => {
            let problem = "is not built in this version: a thread has no state document yet";
            Err(CoreError::invalid(field, "", problem).into())
        }
    }
}

/// Returns the version that an append is to follow; `None` for any.
pub fn expected_version(expected: exported::history::Expected) -> Option<u64> {
    match expected {
        exported::history::Expected::Exact(version) => Some(version),
        exported::history::Expected::Any => None,
    }
}

pub fn snapshot(
    loaded: &LoadedThread,
    window: Option<u64>,
    version: u64,
    hash: String,
) -> exported::history::Snapshot {
    exported::history::Snapshot {
        thread: thread(loaded, window),
        version,
        hash,
        state: "{}".to_owned(),
    }
}

pub fn piece_to_wit(piece: DocumentPiece) -> exported::transcript::Piece {
    exported::transcript::Piece {
        text: piece.text,
        version: piece.version,
        cursor: piece.cursor,
    }
}

pub fn opened_to_wit(loaded: &LoadedThread) -> exported::history::Opened {
    exported::history::Opened {
        version: loaded.head.value.version,
        token: loaded.head.value.token,
    }
}

pub fn append_to_wit(written: &AppendOutcome) -> exported::history::Written {
    exported::history::Written {
        version: written.version,
        status: written.status.to_string(),
        mail: written.mail.iter().map(json::to_text).collect(),
    }
}

pub fn entry_to_wit(line: StoredEntry) -> types::Entry {
    types::Entry {
        version: line.entry.version,
        reason: line.entry.reason.as_str().to_owned(),
        time: instant(line.entry.time),
        hash: Entry::hash_of(&line.text),
        body: line.text,
    }
}

#[inline(never)]
pub fn events(line: &StoredEntry) -> Vec<types::Event> {
    (0_u32..)
        .zip(&line.entry.events)
        .map(|(index, event)| types::Event {
            version: line.entry.version,
            index,
            kind: event.kind().to_owned(),
            time: instant(line.entry.time),
            body: json::to_text(event),
        })
        .collect()
}
