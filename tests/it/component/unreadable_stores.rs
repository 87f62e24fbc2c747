//! Stores that cannot be read for a while: neither a durable end nor a held thread counts as lost.

use super::fixture::{CountingTools, assert_sound, message, scripted_driver, tenant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use threadkeep::driver::{Driver, EventSink, RunEvent, StopReceiver};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, RecordKey, StorageBackend, StorageError, StoredRecord,
};
use threadkeep_tests::fixture::draft;

/// A store that fails some reads of records.
struct FailingReads {
    inner: MemoryStore,
    commits: AtomicU64,
    /// Commit number, and how many reads fail after it.
    after: Vec<(u64, u32)>,
    failing: AtomicU32,
    failed: AtomicU32,
    /// Chains of threads are damaged.
    damaged: AtomicBool,
}

impl FailingReads {
    fn new(after: &[(u64, u32)]) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(),
            commits: AtomicU64::new(0),
            after: after.to_vec(),
            failing: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            damaged: AtomicBool::new(false),
        })
    }
}

impl StorageBackend for FailingReads {
    threadkeep_tests::delegate_calls!(inner: scan, read_log);

    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let chains = keys.iter().any(|key| key.collection == "chain");
        if chains && self.damaged.load(Ordering::SeqCst) {
            let message = "a chain is damaged".to_owned();
            return Err(StorageError::Corrupt { message });
        }
        let left = self.failing.load(Ordering::SeqCst);
        if left > 0 {
            self.failing.store(left - 1, Ordering::SeqCst);
            self.failed.fetch_add(1, Ordering::SeqCst);
            let (code, message) = ("test", "this read fails".to_owned());
            return Err(StorageError::Other { code, message });
        }
        self.inner.get(keys)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let outcome = self.inner.commit(ops, closing)?;
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some((_, fail)) = self.after.iter().find(|(after, _)| *after == number) {
            self.failing.store(*fail, Ordering::SeqCst);
        }
        Ok(outcome)
    }
}

const TWO_TURNS: &str =
    r#"[{"text": "one", "calls": [{"name": "read", "arguments": {}}]}, {"text": "done"}]"#;

/// Symptom: a run was lost, and its next call charged though it was never sent, or its durable end
/// was an error. Cause: a read for the event of a turn, and the one after the end, failed the run.
/// Fix: the event is left out, and the end is read again.
#[tokio::test]
async fn failing_event_reads_do_not_fail_a_run() {
    // The commits: created, started, the first turn, its round, and the second turn, which is the
    // end.
    let store = FailingReads::new(&[(3, 1), (5, 3)]);
    let tenant = tenant(Arc::<FailingReads>::clone(&store));
    let driver = scripted_driver(&tenant, TWO_TURNS, &Arc::<CountingTools>::default(), "one");
    let thread = tenant.create(draft(Some("work"))).await.unwrap().id;
    let (sink, mut events) = EventSink::channel();
    let ended = driver
        .run(&thread, None, &sink, &StopReceiver::never())
        .await;
    assert_eq!(ended.expect("it is durable").status, "completed");
    assert_eq!(store.commits.load(Ordering::SeqCst), 5);
    assert_eq!(store.failed.load(Ordering::SeqCst), 4);
    drop(sink);
    let (mut turns, mut ends) = (0, 0);
    while let Some(event) = events.recv().await {
        turns += u32::from(matches!(event, RunEvent::Turn { .. }));
        ends += u32::from(matches!(event, RunEvent::Ended(_)));
    }
    assert_eq!((turns, ends), (0, 1), "their reads failed");
    assert_sound(&store.inner);
}

/// A model that never finishes by itself.
const SLOW: &str = r#"[{"text": "Begun.", "chunk": 2, "pause_ms": 590000}]"#;

/// Creates a thread whose run was dropped while it was under way.
async fn lose_run(driver: &Driver) -> String {
    let tenant = driver.tenant();
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let running = {
        let (driver, thread) = (driver.clone(), thread.clone());
        let run = async move {
            let (sink, stop) = (EventSink::none(), StopReceiver::never());
            let _ = driver.run(&thread, Some(message("hi")), &sink, &stop).await;
        };
        tokio::spawn(run)
    };
    while tenant.get(&thread).await.unwrap().status != "running" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    thread
}

/// Symptom: a run whose thread could not be read for a while was never closed by its process.
/// Cause: its holder was forgotten although nothing was closed. Fix: it stays in the list of lost
/// runs.
#[tokio::test]
async fn a_lost_run_whose_thread_cannot_be_read_stays_lost() {
    let store = FailingReads::new(&[]);
    let tenant = tenant(Arc::<FailingReads>::clone(&store));
    let driver = scripted_driver(&tenant, SLOW, &Arc::<CountingTools>::default(), "one");
    let thread = lose_run(&driver).await;
    store.damaged.store(true, Ordering::SeqCst);
    let recovered = tenant.recover_all(&["one/1".to_owned()]).await.unwrap();
    assert_eq!((recovered.closed.len(), recovered.unreadable.len()), (0, 1));
    for _ in 0..2 {
        assert!(driver.recover_lost().await.unwrap().is_empty());
    }
    store.damaged.store(false, Ordering::SeqCst);
    assert_eq!(driver.recover_lost().await.unwrap(), [&*thread]);
    assert_sound(&store.inner);
}

/// Symptom: a new title was written, and the answer was an error that says that nothing was. Cause:
/// the window of the thread's model was read after the commit. Fix: it is read before.
#[tokio::test]
async fn a_title_that_was_written_is_answered() {
    // The commits: created, started, the end, the title.
    let store = FailingReads::new(&[(4, u32::MAX)]);
    let shared = || tenant(Arc::<FailingReads>::clone(&store));
    let first = shared();
    let script = r#"[{"text": "done"}]"#;
    let driver = scripted_driver(&first, script, &Arc::<CountingTools>::default(), "one");
    let thread = first.create(draft(Some("work"))).await.unwrap().id;
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    driver.run(&thread, None, &sink, &stop).await.unwrap();
    assert_eq!(store.commits.load(Ordering::SeqCst), 3);
    // An instance that has not read the pin.
    let titled = shared().set_title(&thread, Some("t".to_owned())).await;
    let titled = titled.expect("it is written");
    assert_eq!(titled.title.as_deref(), Some("t"));
    assert!(titled.window.is_some());
    assert_eq!(store.commits.load(Ordering::SeqCst), 4);
}
