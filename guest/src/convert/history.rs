//! Conversions between WIT and core for the interfaces `history` and `transcript`.

use super::{exported, instant, thread, types};
use crate::service::decisions::ThreadDetails;
use crate::service::history::{AppendOutcome, ChangeTexts, StoredEntry};
use crate::service::transcript::DocumentPiece;
use threadkeep_core::history::Entry;
use threadkeep_core::json;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::state::StateDocument;

/// Writes the version that the next page begins after as a cursor.
pub fn cursor(version: Option<u64>) -> Option<String> {
    version.map(|version| version.to_string())
}

/// Returns what an append adds.
pub fn change_texts(change: exported::history::ChangeSet) -> ChangeTexts {
    let exported::history::ChangeSet {
        events,
        patches,
        operations,
        snapshot,
        request,
    } = change;
    ChangeTexts {
        events,
        patches,
        operations,
        snapshot,
        request,
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
    details: ThreadDetails,
    version: u64,
    hash: String,
    state: &StateDocument,
) -> exported::history::Snapshot {
    exported::history::Snapshot {
        thread: thread(loaded, details),
        version,
        hash,
        state: state.to_text(),
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
