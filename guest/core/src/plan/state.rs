//! The state of a thread that changes: its edits as part of the entry, the record of the document
//! now, and a line of the log `state` where a reader would have to go back too far.

use super::{LoadedThread, StoreWrite, ThreadChange};
use crate::error::{Error, ErrorKind};
use crate::hash::sha256_text;
use crate::history::closed_calls;
use crate::json;
use crate::key;
use crate::state::{StateChange, StateDocument, StateEdits, StateScope};
use crate::thread::{StateRecord, StateSummary};

/// Entries that a reader of a state goes back at most: the change after so many writes the document
/// down. With the entry of the version itself a load reads 64.
const CHANGES_READ_MAX: u64 = 63;
/// Bytes of changes below which none is weighed against the document: small documents would be
/// written down with every change.
const CHANGE_BYTES_FLOOR: u64 = 4 << 10;

impl LoadedThread {
    /// Returns the state document of the thread; an empty one if it has none.
    ///
    /// # Errors
    /// `ErrorKind::StateNotLoaded` if it has one that was not loaded.
    pub(crate) fn state_document(&self) -> Result<StateDocument, Error> {
        match (&self.head.value.state, &self.state) {
            (None, _) => Ok(StateDocument::empty()),
            (Some(summary), Some(record)) if record.value.version == summary.version => {
                Ok(record.value.document.clone())
            }
            (Some(_), Some(record)) => Err(Error::corrupt(format!(
                "the state of {} is of version {}, which its head does not name",
                self.thread.value.id, record.value.version
            ))),
            (Some(_), None) => Err(ErrorKind::StateNotLoaded.into()),
        }
    }
}

impl ThreadChange<'_> {
    /// Returns the document that edits of this change meet.
    ///
    /// # Errors
    /// `ErrorKind::StateNotLoaded` if it was not loaded.
    pub(crate) fn state_document(&self) -> Result<StateDocument, Error> {
        self.loaded.state_document()
    }

    /// Applies the edits, and what the change implies: a run that begins empties the scope of the
    /// run, and a call that gets its result loses its own. Returns what the entry says of it.
    pub(super) fn record_state(&mut self) -> Result<Option<StateChange>, Error> {
        let before = self.loaded.head.value.state.unwrap_or_default();
        let begins = self.head.run > self.loaded.head.value.run && before.run;
        let closed = closed_calls(&self.events);
        let closes = before.calls && !closed.is_empty();
        let inherited = self.loaded.head.value.state.is_some() && before.version == 0;
        let mut edits = std::mem::take(&mut self.edits);
        if edits.is_empty() && !begins && !closes && !inherited {
            return Ok(None);
        }
        let mut document = self.state_document()?;
        let replaced = inherited || edits.snapshot.is_some();
        if let Some(snapshot) = &edits.snapshot {
            document.replace_by(snapshot);
        }
        let base = document.clone();
        let version = self.version();
        let mut change = StateChange {
            before: before.version,
            snapshot: 0,
            replaced,
            patches: Vec::new(),
            operations: Vec::new(),
            hash: String::new(),
        };
        if begins && edits.empties_run() {
            document.empty_scope(StateScope::Run);
        }
        apply_edits(&mut document, &edits)?;
        if begins {
            edits.empty_run_first();
        }
        let edit_bytes = edits.stored_bytes() as u64;
        let StateEdits {
            patches,
            operations,
            ..
        } = edits;
        (change.patches, change.operations) = (patches, operations);
        for call in &closed {
            document.drop_call(call);
        }
        let text = document.to_text();
        if let Some(problem) = document.find_unstorable(&text) {
            return Err(Error::invalid("change", "", problem));
        }
        change.hash = sha256_text(&text);
        let after = StateSummary {
            version,
            bytes: text.len() as u64,
            since: before.since + 1,
            patch_bytes: before.patch_bytes + edit_bytes,
            snapshot: before.snapshot,
            ..before
        }
        .of_scopes(&document);
        let after = match replaced || is_to_be_written_down(before, after) {
            true => self.write_down(base, after, edit_bytes),
            false => after,
        };
        if after.snapshot > before.snapshot {
            change.snapshot = after.snapshot;
        }
        self.replace_record(document, version);
        self.head.state = Some(after);
        Ok(Some(change))
    }

    /// Writes the record of the document as it is now.
    fn replace_record(&mut self, document: StateDocument, version: u64) {
        let stored = self.loaded.state.as_ref().map_or(0, |state| state.version);
        super::push_replacement(
            &mut self.extra,
            key::STATE,
            &self.loaded.key(),
            stored,
            &StateRecord::new(document, version),
        );
    }

    /// Writes the document that a change begins with into the log `state`.
    fn write_down(
        &mut self,
        base: StateDocument,
        after: StateSummary,
        edit_bytes: u64,
    ) -> StateSummary {
        let at = after.snapshot + 1;
        self.extra.push(StoreWrite::Append {
            log: key::STATE,
            partition: self.loaded.key(),
            at,
            value: json::to_text(&StateRecord::new(base, after.version)),
        });
        StateSummary {
            since: 1,
            patch_bytes: edit_bytes,
            snapshot: at,
            ..after
        }
    }
}

/// Returns true if the changes since the newest document in the log weigh more than the document,
/// or are too many for a reader.
fn is_to_be_written_down(before: StateSummary, after: StateSummary) -> bool {
    let heavy = after.patch_bytes > after.bytes.max(CHANGE_BYTES_FLOOR);
    before.version > 0 && (heavy || after.since > CHANGES_READ_MAX)
}

fn apply_edits(document: &mut StateDocument, edits: &StateEdits) -> Result<(), Error> {
    let done = document.apply_edits(edits);
    done.map_err(|refusal| Error::invalid(format!("change.{}", refusal.place), "", refusal.problem))
}
