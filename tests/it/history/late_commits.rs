//! A commit of unknown outcome that is written later than its outcome is looked up.

use super::message_event;
use crate::runner::fixture::RunnerFixture;
use std::sync::{Arc, Mutex};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, CommitOutcome, StorageBackend, StorageError};
use threadkeep_component::ports::StorageError as PortError;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_tests::fixture::MapLibrary;

/// The fate of the commit that follows one of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextCommit {
    /// It is tried: the earlier one is written before it.
    Tried,
    /// The store answers that it is away; the earlier one is written before that.
    Away,
    /// The store answers that it is away, and the earlier one is lost.
    AwayWithout,
}

/// A store that answers one commit with `outcome-unknown`, and writes it before the next.
struct LateStore {
    inner: MemoryStore,
    next: NextCommit,
    armed: Mutex<bool>,
    late: Mutex<Option<Vec<CommitOp>>>,
}

impl StorageBackend for LateStore {
    threadkeep_tests::delegate_calls!(inner: get, scan, read_log);

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        if std::mem::take(&mut *self.armed.lock().unwrap()) {
            *self.late.lock().unwrap() = Some(ops.to_vec());
            let message = "still under way".to_owned();
            return Err(StorageError::OutcomeUnknown { message });
        }
        if let Some(late) = self.late.lock().unwrap().take() {
            if self.next != NextCommit::AwayWithout {
                assert_eq!(self.inner.commit(&late, false)?, CommitOutcome::Committed);
            }
            if self.next != NextCommit::Tried {
                let message = "away".to_owned();
                return Err(StorageError::Unavailable { message });
            }
        }
        self.inner.commit(ops, closing)
    }
}

/// Appends a message to any version of a chat, in a commit of unknown outcome; returns the answer
/// and the number of entries.
fn append_late(next: NextCommit) -> (Result<u64, Error>, usize) {
    let store = Arc::new(LateStore {
        inner: MemoryStore::new(),
        next,
        armed: Mutex::default(),
        late: Mutex::default(),
    });
    let shared: Arc<dyn StorageBackend> = Arc::<LateStore>::clone(&store);
    let mut world = RunnerFixture::over(shared, MapLibrary::small());
    let chat = world.create(None);
    *store.armed.lock().unwrap() = true;
    let events = [message_event("user", "hi").to_string()];
    let written = world.service.append(&chat, None, None, &events);
    let entries = world.service.entries(&chat, 0, None, 9).unwrap().1;
    world.audit();
    (written.map(|written| written.version), entries.len())
}

/// Symptom: an append to any version was written twice. Cause: its first commit, of unknown
/// outcome, was written after the look-up; the second one met it and took it for another writer's,
/// and the append was decided again. Fix: what a repeated commit meets is looked up, too. Kind:
/// every answer of a commit that follows one of unknown outcome.
#[test]
fn an_append_whose_commit_is_written_late_is_written_once() {
    for next in [NextCommit::Tried, NextCommit::Away] {
        let (written, entries) = append_late(next);
        assert_eq!(
            (written.as_ref().ok(), entries),
            (Some(&1), 1),
            "{next:?}: {written:?}"
        );
    }
    // Nobody can tell if the first one will be written yet.
    let (written, entries) = append_late(NextCommit::AwayWithout);
    let unknown = matches!(
        written.as_ref().map_err(Error::kind),
        Err(ErrorKind::Storage(PortError::OutcomeUnknown(..)))
    );
    assert!(unknown && entries == 0, "{written:?}");
}
