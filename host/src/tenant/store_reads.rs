//! Reads that a command line asks of many threads, from the store itself: ids by their beginning,
//! for the contract lists threads by time and owner alone; the own entries of a thread, in one read
//! where the contract needs two calls; and marks of all heads, where it needs a call for each.

use super::Tenant;
use crate::storage::{PAGE_ENTRIES_MAX, RecordKey, StorageBackend, StorageError};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::sync::Arc;

/// The collection of the records of threads, whose names are ids in lower case.
const THREADS: &str = "thread";

/// The collection of the heads of threads, whose names are ids in lower case.
const HEADS: &str = "head";

/// The log of entries; its partition is the id in lower case.
const HISTORY: &str = "history";

/// Comes after every character that an id may have.
const AFTER_IDS: char = '\u{7f}';

/// The mark of a thread's head: while it is the same, the thread has the same own entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadMark {
    /// The id in lower case.
    pub thread: String,
    /// The beginning of the SHA-256 of the head as it is stored, which names the thread's newest
    /// entry by version and hash; `None` for a head that cannot be read.
    pub digest: Option<[u64; 2]>,
}

impl HeadMark {
    fn new(thread: String, head: Option<&str>) -> Self {
        let digest = head.map(|head| {
            let digest: [u8; 32] = Sha256::digest(head).into();
            let (words, _) = digest.as_chunks::<{ size_of::<u64>() }>();
            [0, 1].map(|place: usize| u64::from_be_bytes(words[place]))
        });
        Self { thread, digest }
    }
}

impl Tenant {
    /// Returns a mark of each head, in the order of their threads. A head that is written meanwhile
    /// has its mark from before or after. It blocks: a thread of its own would ask the system for
    /// each page of SQLite's cache.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read_head_marks(&self) -> Result<Vec<HeadMark>, StorageError> {
        mark_heads(&*self.context.storage)
    }

    /// Returns the mark of one head; `None` if the thread has none.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn head_mark(&self, thread: &str) -> Result<Option<HeadMark>, StorageError> {
        let key = RecordKey::new(HEADS, thread.to_ascii_lowercase());
        let read = move |storage: &dyn StorageBackend| storage.get(&[key]);
        let found = self.read_store(read).await?.into_iter().next();
        Ok(found.map(|head| HeadMark::new(head.key.name, Some(&head.value))))
    }

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
    /// Those of the store; [`StorageError::Corrupt`] if an entry before the last of the page is
    /// missing.
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
        let expected = lines.iter().zip(position..);
        if let Some((_, missing)) = expected.into_iter().find(|(line, at)| line.position != *at) {
            return Err(StorageError::Corrupt {
                message: format!("entry {missing} of {thread} is missing"),
            });
        }
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

fn mark_heads(storage: &dyn StorageBackend) -> Result<Vec<HeadMark>, StorageError> {
    let mut marks = Vec::new();
    storage.visit_records(HEADS, &mut |thread, head| {
        marks.push(HeadMark::new(thread.to_owned(), head));
    })?;
    let mut threads = Vec::new();
    storage.visit_names(THREADS, &mut |thread| threads.push(thread.to_owned()))?;
    // A thread without a head has a mark of none: what it has used cannot be read.
    let heads: HashSet<&str> = marks.iter().map(|mark| &*mark.thread).collect();
    threads.retain(|thread| !heads.contains(&**thread));
    marks.extend(
        threads
            .into_iter()
            .map(|thread| HeadMark::new(thread, None)),
    );
    marks.sort_unstable_by(|one, other| one.thread.cmp(&other.thread));
    Ok(marks)
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

    fn put_record(store: &MemoryStore, collection: &str, name: &str, value: &str) {
        let put = CommitOp::Put {
            key: RecordKey::new(collection, name),
            expect: RecordExpectation::Any,
            value: value.to_owned(),
        };
        store.commit(&[put], false).unwrap();
    }

    #[test]
    fn a_head_that_is_written_has_another_mark() {
        let store = MemoryStore::new();
        for place in 0..PAGE_ENTRIES_MAX + 2 {
            put_record(&store, HEADS, &format!("t{place:04}"), r#"{"version":1}"#);
        }
        let first = mark_heads(&store).unwrap();
        assert_eq!(first.len(), PAGE_ENTRIES_MAX as usize + 2);
        assert!(first.is_sorted_by(|one, other| one.thread < other.thread));
        assert!(first.iter().all(|mark| mark.digest == first[0].digest));
        put_record(&store, HEADS, "t0001", r#"{"version":2}"#);
        let second = mark_heads(&store).unwrap();
        assert_ne!(second[1].digest, first[1].digest);
        assert_eq!(second[2..], first[2..]);
        put_record(&store, THREADS, "t0001", "{}");
        put_record(&store, THREADS, "a", "{}");
        let third = mark_heads(&store).unwrap();
        assert_eq!((third[0].thread.as_str(), third[0].digest), ("a", None));
        assert_eq!(third[1..], second);
    }

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
            put_record(&store, THREADS, name, value);
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
