//! A store whose log answers entries with an edited text.

use std::sync::{Mutex, PoisonError};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{LogEntry, StorageBackend, StorageError};

/// A store over memory that edits what it reads from a log; nothing yet when it is made.
pub struct EditedLog {
    inner: MemoryStore,
    edit: Mutex<Option<(String, String)>>,
}

impl Default for EditedLog {
    fn default() -> Self {
        Self {
            inner: MemoryStore::new(),
            edit: Mutex::new(None),
        }
    }
}

impl EditedLog {
    /// Replaces the first place of a text in each entry from now on.
    pub fn edit(&self, from: &str, to: &str) {
        let edit = (from.to_owned(), to.to_owned());
        *self.edit.lock().unwrap_or_else(PoisonError::into_inner) = Some(edit);
    }
}

impl StorageBackend for EditedLog {
    crate::delegate_calls!(inner: get, scan, commit);

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        let mut entries = self.inner.read_log(log, partition, start, limit, reverse)?;
        let edit = self.edit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((from, to)) = &*edit {
            for entry in &mut entries {
                entry.value = entry.value.replacen(from, to, 1);
            }
        }
        Ok(entries)
    }
}
