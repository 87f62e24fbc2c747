//! Threads as their records in the store say, for a host that the component has called: it cannot
//! ask the component meanwhile.

use super::BlobError;
use super::thread_blobs::{BlobThread, BlobThreads};
use serde_json::Value;
use threadkeep_storage::{RecordKey, StorageBackend};

/// Reason why the records of a store do not tell of a thread.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadThread {
    /// The store has no such thread.
    #[error("there is no thread {0:?}")]
    Missing(String),
    /// A record of the thread has not what every version of the component writes.
    #[error("a record of the thread {0} cannot be read")]
    Damaged(String),
}

/// The threads of a store.
pub struct RecordedThreads<'a>(pub &'a dyn StorageBackend);

impl BlobThreads for RecordedThreads<'_> {
    type ReadError = UnreadThread;

    /// Reads `id` and `chain` of the record of the thread, and `status` of its head.
    fn read_thread(&self, thread: &str) -> Result<BlobThread, BlobError<UnreadThread>> {
        let key = |collection: &str| RecordKey::new(collection, thread.to_lowercase());
        let found = self.0.get(&[key("thread"), key("head")])?;
        let field = |collection: &str, name: &str| {
            let record = found.iter().find(|one| one.key.collection == collection)?;
            let value: Value = serde_json::from_str(&record.value).ok()?;
            value[name].as_str().map(str::to_owned)
        };
        if found.is_empty() {
            return Err(BlobError::Call(UnreadThread::Missing(thread.to_owned())));
        }
        let read = (|| {
            Some(BlobThread {
                id: field("thread", "id")?,
                chain: field("thread", "chain")?,
                status: field("head", "status")?,
            })
        })();
        read.ok_or_else(|| BlobError::Call(UnreadThread::Damaged(thread.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::{ThreadBlobs, UnstoredResult, read_blob};
    use serde_json::json;
    use threadkeep_storage::memory::MemoryStore;
    use threadkeep_storage::{CommitOp, RecordExpectation, StorageQuota};

    fn put_record(store: &MemoryStore, collection: &str, value: &str) {
        let op = CommitOp::Put {
            key: RecordKey::new(collection, "talk"),
            expect: RecordExpectation::Any,
            value: value.to_owned(),
        };
        store.commit(&[op], false).unwrap();
    }

    /// A store with the thread `Talk` of this status, the first of its chain.
    fn store_of(status: &str) -> MemoryStore {
        let store = MemoryStore::new();
        put_record(&store, "thread", r#"{"id":"Talk","chain":"Talk"}"#);
        put_record(&store, "head", &json!({"status": status}).to_string());
        put_record(&store, "chain", "{}");
        store
    }

    fn blobs(store: &MemoryStore) -> ThreadBlobs<'_, RecordedThreads<'_>> {
        ThreadBlobs {
            storage: store,
            threads: RecordedThreads(store),
            now: &|| 1_700_000_000,
        }
    }

    fn png(size: usize) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        bytes.resize(size, 7);
        bytes
    }

    #[test]
    fn an_image_is_stored_under_the_chain_of_its_thread() {
        let store = store_of("running");
        let name = blobs(&store).store_image("TALK", &png(9_000)).unwrap();
        let read = read_blob::<UnreadThread>(&store, "Talk", &name.hash).unwrap();
        assert_eq!((read, name.media.as_str()), (png(9_000), "image/png"));
    }

    #[test]
    fn what_cannot_be_stored_is_named() {
        let store = store_of("killed");
        let ended = blobs(&store).store_image("talk", &png(9)).unwrap_err();
        assert_eq!(
            ended.to_string(),
            "the thread Talk is killed: it takes nothing more"
        );
        assert_eq!(ended.code(), Some("refused"));
        let store = store_of("running");
        for (bytes, words) in [
            (png(3_750_001), "models take images of at most 3.75 MB"),
            (b"<svg/>".to_vec(), "it is no png, jpeg, gif or webp image"),
        ] {
            let error = blobs(&store).store_image("talk", &bytes).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.code(), Some("invalid"));
        }
        let missing = blobs(&store).store_image("other", &png(9));
        let expected = UnreadThread::Missing("other".to_owned());
        assert!(matches!(missing, Err(BlobError::Call(why)) if why == expected));
        for record in ["not JSON", "{}", r#"{"id":"Talk"}"#] {
            put_record(&store, "thread", record);
            let damaged = blobs(&store).store_image("talk", &png(9));
            let expected = UnreadThread::Damaged("talk".to_owned());
            assert!(matches!(damaged, Err(BlobError::Call(why)) if why == expected));
        }
        assert!(
            store
                .scan("blob", "", "", 9, false)
                .unwrap()
                .items
                .is_empty()
        );
    }

    /// The tool has run: its result says what could not be kept.
    #[test]
    fn a_result_is_never_lost_for_its_blobs() {
        let result = || UnstoredResult {
            text: "cat.png:".to_owned(),
            images: vec![png(100)],
            whole: Some("all of it".to_owned()),
            ..UnstoredResult::default()
        };
        let store = store_of("running");
        let stored = blobs(&store).store_result("talk", true, result());
        let kinds = stored.blocks.iter().map(|block| block["type"].clone());
        assert_eq!(kinds.collect::<Vec<_>>(), ["image", "blob"]);
        assert!(!stored.failed);
        let content: Value = serde_json::from_str(&stored.content()).unwrap();
        assert_eq!(content[0]["text"], stored.text.as_str());
        assert_eq!(content.as_array().map(Vec::len), Some(3));
        let blind = blobs(&store).store_result("talk", false, result());
        let told = "the model of this thread takes no images";
        assert!(blind.failed && blind.text.contains(told), "{}", blind.text);
        assert_eq!(blind.blocks.len(), 1);
        store.set_quota(Some(StorageQuota {
            limit_bytes: 1,
            closing_margin_bytes: 1,
        }));
        let other = UnstoredResult {
            images: vec![png(200)],
            ..result()
        };
        let full = blobs(&store).store_result("talk", true, other);
        assert!(full.failed && full.text.contains("is not shown: the store is full"));
        let lost = crate::blobs::StoredResult::lost(&result());
        assert!(lost.failed && lost.text.starts_with("cat.png:\n["));
        assert!(lost.blocks.is_empty());
    }
}
