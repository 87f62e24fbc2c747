//! Reads that a command line asks of many threads, from the store itself: ids by their beginning,
//! for the contract lists threads by time and owner alone, and the own entries of a thread, in one
//! read where the contract needs two calls.

use super::Tenant;
use crate::storage::{PAGE_ENTRIES_MAX, StorageBackend, StorageError};
use serde_json::Value;
use std::sync::Arc;

/// The collection of the records of threads, whose names are ids in lower case.
const THREADS: &str = "thread";

/// The log of entries; its partition is the id in lower case.
const HISTORY: &str = "history";

/// Comes after every character that an id may have.
const AFTER_IDS: char = '\u{7f}';

impl Tenant {
    /// Returns the ids of threads that begin with a text, whatever its case, in their order and at
    /// most `limit`, which is at most that of a page. A thread whose record cannot be read is named
    /// in lower case.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn find_ids(&self, beginning: &str, limit: u32) -> Result<Vec<String>, StorageError> {
        let beginning = beginning.to_ascii_lowercase();
        self.read_store(move |storage| scan_ids(storage, &beginning, limit))
            .await
    }

    /// Returns a page of a thread's own entries as they are stored, from a position (1: the first)
    /// on; none at the end, and for a thread that there is not.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn own_entries(
        &self,
        thread: &str,
        position: u64,
    ) -> Result<Vec<String>, StorageError> {
        let key = thread.to_ascii_lowercase();
        let read = move |storage: &dyn StorageBackend| {
            storage.read_log(HISTORY, &key, position, PAGE_ENTRIES_MAX, false)
        };
        let lines = self.read_store(read).await?;
        Ok(lines.into_iter().map(|line| line.value).collect())
    }

    /// Reads on a thread that may block.
    async fn read_store<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn StorageBackend) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let storage = Arc::clone(&self.context.storage);
        let done = tokio::task::spawn_blocking(move || read(&*storage)).await;
        done.unwrap_or_else(|error| {
            Err(StorageError::Unavailable {
                message: format!("no thread could ask it: {error}"),
            })
        })
    }
}

fn scan_ids(
    storage: &dyn StorageBackend,
    beginning: &str,
    limit: u32,
) -> Result<Vec<String>, StorageError> {
    let end = format!("{beginning}{AFTER_IDS}");
    let (mut ids, mut start) = (Vec::new(), beginning.to_owned());
    loop {
        let left = limit.saturating_sub(u32::try_from(ids.len()).unwrap_or(u32::MAX));
        if left == 0 {
            return Ok(ids);
        }
        let page = storage.scan(THREADS, &start, &end, left, false)?;
        ids.extend(page.items.into_iter().map(|item| {
            let id = serde_json::from_str::<Value>(&item.value);
            let id = id.ok().and_then(|mut record| match record["id"].take() {
                Value::String(id) if id.eq_ignore_ascii_case(&item.key.name) => Some(id),
                _ => None,
            });
            id.unwrap_or(item.key.name)
        }));
        ids.extend(page.damaged.into_iter().map(|damaged| damaged.name));
        match page.cursor {
            Some(cursor) => start = cursor,
            None => return Ok(ids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory::MemoryStore;
    use crate::storage::{CommitOp, RecordExpectation, RecordKey};

    #[test]
    fn finds_the_ids_that_begin_alike() {
        let store = MemoryStore::new();
        for (name, value) in [
            ("a", r#"{"id":"A"}"#),
            ("a-1", r#"{"id":"a-1"}"#),
            ("a/b", r#"{"id":"a/B"}"#),
            ("ab", "no JSON"),
            ("b", r#"{"id":"b"}"#),
            ("ba", r#"{"id":"other"}"#),
        ] {
            let put = CommitOp::Put {
                key: RecordKey::new(THREADS, name),
                expect: RecordExpectation::Absent,
                value: value.to_owned(),
            };
            store.commit(&[put], false).unwrap();
        }
        let find = |beginning: &str, limit| scan_ids(&store, beginning, limit).unwrap();
        assert_eq!(find("a", 10), ["A", "a-1", "a/B", "ab"]);
        assert_eq!(find("a", 2), ["A", "a-1"]);
        assert_eq!(find("a/", 10), ["a/B"]);
        assert_eq!(find("b", 10), ["b", "ba"]);
        assert_eq!(find("", 10).len(), 6);
        assert!(find("c", 10).is_empty());
        assert!(find("a", 0).is_empty());
    }
}
