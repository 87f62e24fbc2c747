//! State documents: as they are now, and as they were at a version.
//!
//! The document now is a record of its own. An earlier one is made again from the entries that
//! changed it, back to the last that wrote a whole document into the log `state`. Both are compared
//! with the hash in the entry, so a record that was edited is found.

use super::history::{check_on_path, missing_entry, thread_path};
use super::store::find_record;
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use std::rc::Rc;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::hash::sha256_text;
use threadkeep_core::history::{Entry, closed_calls};
use threadkeep_core::plan::{LoadedThread, StoredRecord};
use threadkeep_core::state::{StateChange, StateDocument};
use threadkeep_core::thread::{PathRange, StateRecord};
use threadkeep_core::{id, json, key};

/// Kind of the record, as errors name it.
const STATE_RECORD: &str = "state";

/// Most entries that changed a state between two whole documents in its log.
const CHANGES_MAX: usize = 64;

impl<P: HostPorts> ThreadService<P> {
    /// Loads the state record of a thread for a decision. Returns false if the head was replaced
    /// since it was read, so that the decision is to be made anew.
    pub(super) fn load_state(&self, loaded: &mut LoadedThread) -> Result<bool, Error> {
        let own = loaded.key();
        let pairs = [(key::STATE, own.as_str()), (key::HEAD, own.as_str())];
        let items = self.ports.get(&pairs)?;
        let head = items.iter().find(|item| item.collection == key::HEAD);
        if head.map(|item| item.version) != Some(loaded.head.version) {
            return Ok(false);
        }
        let record: Option<StoredRecord<StateRecord>> = find_record(&items, key::STATE, &own)?;
        let record = record.ok_or_else(|| missing_state(&loaded.thread.value.id))?;
        let id = &loaded.thread.value.id;
        record.value.format.refuse_newer(id, STATE_RECORD)?;
        loaded.state = Some(record);
        Ok(true)
    }

    /// Returns the state document that a thread had at a version of its path.
    pub fn state_at(&self, loaded: &LoadedThread, version: u64) -> Result<StateDocument, Error> {
        let path = thread_path(loaded);
        check_on_path(loaded, &path, "version", version)?;
        if version == loaded.head.value.version
            && let Some(document) = self.newest_state(loaded)?
        {
            return Ok(document);
        }
        let Some(range) = path.range_of(version) else {
            // What a thread inherits is in its first entry.
            return Ok(StateDocument::empty());
        };
        self.fold_state(loaded, range.thread, version)
    }

    /// Reads the newest document; `None` where it was replaced since the head was read.
    fn newest_state(&self, loaded: &LoadedThread) -> Result<Option<StateDocument>, Error> {
        let head = &loaded.head.value;
        let Some(summary) = &head.state else {
            return Ok(Some(StateDocument::empty()));
        };
        let own = loaded.key();
        let items = self.ports.get(&[(key::STATE, &own)])?;
        let record: Option<StoredRecord<StateRecord>> = find_record(&items, key::STATE, &own)?;
        let id = &loaded.thread.value.id;
        let record = record.ok_or_else(|| missing_state(id))?.value;
        let record = Rc::unwrap_or_clone(record);
        if record.version != summary.version {
            return Ok(None);
        }
        let entry = self.state_entry(loaded, id, summary.version)?;
        let change = entry.state.as_ref();
        let change = change.ok_or_else(|| missing_entry(id, summary.version))?;
        check_hash(id, summary.version, change, &record.document)?;
        Ok(Some(record.document))
    }

    /// Makes the document of a version again from the entries of the thread that made them.
    fn fold_state(
        &self,
        loaded: &LoadedThread,
        owner: &str,
        version: u64,
    ) -> Result<StateDocument, Error> {
        let mut entry = self.state_entry(loaded, owner, version)?;
        if entry.state.is_none() {
            match entry.state_at {
                0 => return Ok(StateDocument::empty()),
                changed if changed >= version => return Err(missing_entry(owner, changed)),
                changed => entry = self.state_entry(loaded, owner, changed)?,
            }
        }
        let mut changes: Vec<(u64, StateChange, Vec<String>)> = Vec::new();
        let mut document = loop {
            let version = entry.version;
            let closed = closed_calls(&entry.events);
            let change = entry.state.take();
            let change = change.ok_or_else(|| missing_entry(owner, version))?;
            let (before, snapshot) = (change.before, change.snapshot);
            changes.push((version, change, closed));
            match (snapshot, before) {
                (1.., _) => break self.state_line(owner, snapshot, version)?,
                (0, 0) => break StateDocument::empty(),
                (0, before) if before >= version || changes.len() >= CHANGES_MAX => {
                    return Err(missing_entry(owner, before));
                }
                (0, before) => entry = self.state_entry(loaded, owner, before)?,
            }
        };
        for (version, change, closed) in changes.iter().rev() {
            let applied = change.apply_to(&mut document, closed);
            applied.map_err(|problem| {
                let problem =
                    format!("version {version} of {owner} changes its state by {problem}");
                CoreError::corrupt(problem)
            })?;
            check_hash(owner, *version, change, &document)?;
        }
        Ok(document)
    }

    /// Reads the entry of a version that a thread has made itself.
    fn state_entry(
        &self,
        loaded: &LoadedThread,
        owner: &str,
        version: u64,
    ) -> Result<Entry, Error> {
        let range = PathRange {
            thread: owner,
            from: version,
            to: version,
            hash: None,
        };
        let texts = self.range_entries(loaded, range, version, 1, false)?;
        let entry = texts.first().map(|(_, text)| Entry::from_text(text));
        let entry = entry.transpose()?;
        let entry = entry.filter(|entry| entry.version == version);
        entry.ok_or_else(|| missing_entry(owner, version))
    }

    /// Reads a whole document that an entry wrote.
    fn state_line(&self, owner: &str, at: u64, version: u64) -> Result<StateDocument, Error> {
        let read = self
            .ports
            .read_log(key::STATE, &id::key(owner), at, 1, false)?;
        let line = read.into_iter().find(|(position, _)| *position == at);
        let wrong = |problem: &str| {
            let message = format!("line {at} of the states of {owner} {problem}");
            Error::from(CoreError::corrupt(message))
        };
        let (_, text) = line.ok_or_else(|| wrong("is missing"))?;
        let line: StateRecord =
            json::read(&text).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
        line.format.refuse_newer(owner, STATE_RECORD)?;
        match line.version == version {
            true => Ok(line.document),
            false => Err(wrong("is of another version")),
        }
    }
}

fn missing_state(thread: &str) -> Error {
    CoreError::corrupt(format!("the state record of {thread} is missing")).into()
}

/// Refuses a document that is not the one that its entry made.
fn check_hash(
    thread: &str,
    version: u64,
    change: &StateChange,
    document: &StateDocument,
) -> Result<(), Error> {
    match sha256_text(&document.to_text()) == change.hash {
        true => Ok(()),
        false => {
            let message = format!("the state of {thread} is not what version {version} made it");
            Err(CoreError::corrupt(message).into())
        }
    }
}
