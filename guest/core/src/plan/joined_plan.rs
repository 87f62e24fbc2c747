//! Joins two plans into one commit: what one decision changes in several threads of a chain is
//! written whole or not at all.
//!
//! A plan that is decided after another sees the records as that one leaves them, at the store
//! versions that were read: see [`CommitPlan::apply_to`]. So the conditions of both are about the
//! store before the commit. Where both write a record, the value of the later stays, on the
//! condition of the earlier.

use super::writes::{StoreWrite, WriteCondition};
use super::{CommitPlan, LoadedThread, StoredRecord};
use crate::error::Error;
use crate::json::{self, FromJson};
use crate::state::StateDocument;
use crate::thread::StateRecord;
use crate::{id, key};
use std::mem::take;
use std::rc::Rc;

/// Most operations of a commit: the bound of every store, from `wit/storage.wit`.
pub const COMMIT_OPS_MAX: usize = 1_024;
/// Most bytes of a commit, keys, partitions and values together: the bound of every store.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;

/// Reason why two plans cannot be one commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanJoinError {
    /// The later plan expects of a record what the earlier one rules out.
    #[error("the record {collection} {key:?} cannot be as the later of two plans expects")]
    Contradiction {
        /// Collection of the record.
        collection: &'static str,
        /// Its key.
        key: String,
    },
    /// The later plan removes a record on whose version the earlier one depends: a store removes
    /// without a condition.
    #[error("the record {collection} {key:?} cannot be removed at the version that was read")]
    GuardedRemoval {
        /// Collection of the record.
        collection: &'static str,
        /// Its key.
        key: String,
    },
    /// Both together have more operations than [`COMMIT_OPS_MAX`].
    #[error("a commit of {ops} operations is too large, the most is {COMMIT_OPS_MAX}")]
    TooManyOps {
        /// Operations of both.
        ops: usize,
    },
    /// Both together have more bytes than [`COMMIT_BYTES_MAX`].
    #[error("a commit of {bytes} bytes is too large, the most is {COMMIT_BYTES_MAX}")]
    TooManyBytes {
        /// Bytes of both.
        bytes: usize,
    },
}

impl From<PlanJoinError> for Error {
    fn from(error: PlanJoinError) -> Self {
        let problem = error.to_string();
        match error {
            PlanJoinError::Contradiction { .. } | PlanJoinError::GuardedRemoval { .. } => {
                Self::corrupt(problem)
            }
            PlanJoinError::TooManyOps { .. } | PlanJoinError::TooManyBytes { .. } => {
                Self::invalid("commit", "", problem)
            }
        }
    }
}

impl CommitPlan {
    /// Joins a plan with one that was decided after it, into a plan of one commit that names each
    /// key once: of a record that both write, the later value on the earlier condition; appends in
    /// order. It closes if both do, and is about the thread of the later.
    ///
    /// # Errors
    /// Any of [`PlanJoinError`]; then there is no commit that does what both do.
    pub fn join(self, mut later: Box<Self>) -> Result<Box<Self>, PlanJoinError> {
        let same_thread = id::key(&self.thread.id) == id::key(&later.thread.id);
        if same_thread && later.entry.is_none() {
            (later.entry, later.messages) = (self.entry, self.messages);
        }
        later.writes = join_writes(self.writes, take(&mut later.writes))?;
        later.closing &= self.closing;
        later.logged = later.logged.take().or(self.logged);
        check_size(&later.writes)?;
        Ok(later)
    }

    /// Returns the records of a thread as this plan leaves them, each at the store version that was
    /// read: what a plan that is joined to this one is decided from. The thread may be another of
    /// the same chain.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` if the plan writes a text that is no such record.
    pub fn apply_to(&self, loaded: &LoadedThread) -> Result<LoadedThread, Error> {
        let mut after = loaded.clone();
        let own = loaded.key();
        self.replace(&mut after.thread, key::THREAD, &own)?;
        self.replace(&mut after.head, key::HEAD, &own)?;
        self.replace(&mut after.chain, key::CHAIN, &loaded.chain_key())?;
        if self.writes_record(key::STATE, &own) {
            let mut state = StoredRecord::absent(StateRecord::new(StateDocument::empty(), 0));
            state.version = loaded.state.as_ref().map_or(0, |state| state.version);
            self.replace(&mut state, key::STATE, &own)?;
            after.state = Some(state);
        }
        for (above, root) in after.above.iter_mut().zip(&loaded.chain.value.above) {
            self.replace(above, key::CHAIN, &id::key(root))?;
        }
        if let Some(parent) = &mut after.parent
            && let Some(text) = self.written_text(key::HEAD, &id::key(&parent.id))
        {
            text.clone_into(&mut parent.text);
        }
        Ok(after)
    }

    /// Returns true if the plan writes a record of this name.
    pub(super) fn writes_record(&self, of: &str, name: &str) -> bool {
        self.written_text(of, name).is_some()
    }

    /// Returns the text of a record, if the plan writes it.
    pub fn written_text(&self, of: &str, name: &str) -> Option<&str> {
        self.writes.iter().find_map(|write| match write {
            StoreWrite::Put {
                collection,
                key,
                value,
                ..
            } => (*collection == of && key == name).then_some(value.as_str()),
            StoreWrite::Check { .. }
            | StoreWrite::Delete { .. }
            | StoreWrite::Append { .. }
            | StoreWrite::Trim { .. } => None,
        })
    }

    /// Replaces the value of a record by the one that the plan writes, if it writes it.
    fn replace<T: FromJson>(
        &self,
        record: &mut StoredRecord<T>,
        of: &str,
        name: &str,
    ) -> Result<(), Error> {
        if let Some(text) = self.written_text(of, name) {
            let unreadable = |error| Error::corrupt(format!("a plan writes {of} {name}: {error}"));
            record.value = Rc::new(json::read(text).map_err(unreadable)?);
        }
        Ok(())
    }
}

/// Joins the writes of two plans.
fn join_writes(
    mut writes: Vec<StoreWrite>,
    later: Vec<StoreWrite>,
) -> Result<Vec<StoreWrite>, PlanJoinError> {
    let count = writes.len();
    for write in later {
        let name = record_name(&write);
        let mut earlier = writes[..count].iter();
        let earlier = earlier.rposition(|of| name.is_some() && record_name(of) == name);
        match earlier {
            None => writes.push(write),
            Some(at) => writes[at] = join_on_record(&writes[at], write)?,
        }
    }
    Ok(writes)
}

/// Returns the collection and key of the record that a write is about; `None` for a log.
fn record_name(write: &StoreWrite) -> Option<(&'static str, &str)> {
    match write {
        StoreWrite::Check {
            collection, key, ..
        }
        | StoreWrite::Put {
            collection, key, ..
        }
        | StoreWrite::Delete { collection, key } => Some((collection, key)),
        StoreWrite::Append { .. } | StoreWrite::Trim { .. } => None,
    }
}

/// Joins two writes of the same record.
fn join_on_record(earlier: &StoreWrite, later: StoreWrite) -> Result<StoreWrite, PlanJoinError> {
    let expect = join_conditions(condition(earlier), condition(&later));
    let (StoreWrite::Check {
        collection, key, ..
    }
    | StoreWrite::Put {
        collection, key, ..
    }
    | StoreWrite::Delete { collection, key }) = earlier
    else {
        return Ok(later);
    };
    let (collection, key) = (*collection, key.clone());
    let Some(expect) = expect else {
        return Err(PlanJoinError::Contradiction { collection, key });
    };
    // A later plan that only looks leaves what the earlier one writes.
    let written = match later {
        StoreWrite::Check { .. } => earlier.clone(),
        later => later,
    };
    Ok(match (written, expect) {
        (StoreWrite::Put { value, .. }, expect) => StoreWrite::Put {
            collection,
            key,
            expect,
            value,
        },
        (StoreWrite::Delete { .. }, WriteCondition::Any) => StoreWrite::Delete { collection, key },
        (StoreWrite::Delete { .. }, WriteCondition::Version(_)) => {
            return Err(PlanJoinError::GuardedRemoval { collection, key });
        }
        // Of a record that was written and removed only the condition stays.
        (_, expect) => StoreWrite::Check {
            collection,
            key,
            expect,
        },
    })
}

/// Returns the condition of a write on the record before.
fn condition(write: &StoreWrite) -> WriteCondition {
    match write {
        StoreWrite::Check { expect, .. } | StoreWrite::Put { expect, .. } => *expect,
        StoreWrite::Delete { .. } | StoreWrite::Append { .. } | StoreWrite::Trim { .. } => {
            WriteCondition::Any
        }
    }
}

/// Returns what must hold so that both conditions do; `None` if they never do. Both are about the
/// store before the commit.
fn join_conditions(earlier: WriteCondition, later: WriteCondition) -> Option<WriteCondition> {
    match (earlier, later) {
        (WriteCondition::Any, only) | (only, WriteCondition::Any) => Some(only),
        (earlier, later) => (earlier == later).then_some(earlier),
    }
}

/// Checks that a store takes so many operations and bytes as one commit.
fn check_size(writes: &[StoreWrite]) -> Result<(), PlanJoinError> {
    if writes.len() > COMMIT_OPS_MAX {
        return Err(PlanJoinError::TooManyOps { ops: writes.len() });
    }
    let bytes = writes.iter().map(write_bytes).sum();
    match bytes > COMMIT_BYTES_MAX {
        true => Err(PlanJoinError::TooManyBytes { bytes }),
        false => Ok(()),
    }
}

/// Returns the bytes of a write that a store counts: key or partition, and value.
fn write_bytes(write: &StoreWrite) -> usize {
    match write {
        StoreWrite::Check { key, .. } | StoreWrite::Delete { key, .. } => key.len(),
        StoreWrite::Put { key, value, .. } => key.len() + value.len(),
        StoreWrite::Append {
            partition, value, ..
        } => partition.len() + value.len(),
        StoreWrite::Trim { partition, .. } => partition.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::WriteCondition::{Absent, Any, Version};
    use super::*;
    use crate::error::ErrorKind;

    fn put_record(expect: WriteCondition, value: &str) -> StoreWrite {
        StoreWrite::Put {
            collection: key::HEAD,
            key: "k".to_owned(),
            expect,
            value: value.to_owned(),
        }
    }

    fn check_record(expect: WriteCondition) -> StoreWrite {
        StoreWrite::Check {
            collection: key::HEAD,
            key: "k".to_owned(),
            expect,
        }
    }

    fn delete_record() -> StoreWrite {
        StoreWrite::Delete {
            collection: key::HEAD,
            key: "k".to_owned(),
        }
    }

    fn append_entry(at: u64, value: &str) -> StoreWrite {
        StoreWrite::Append {
            log: key::HISTORY,
            partition: "k".to_owned(),
            at,
            value: value.to_owned(),
        }
    }

    #[test]
    fn writes_of_one_record_join_to_one() {
        for (earlier, later, joined) in [
            (
                put_record(Version(3), "a"),
                put_record(Version(3), "b"),
                put_record(Version(3), "b"),
            ),
            (
                put_record(Version(3), "a"),
                put_record(Any, "b"),
                put_record(Version(3), "b"),
            ),
            (
                put_record(Absent, "a"),
                put_record(Absent, "b"),
                put_record(Absent, "b"),
            ),
            (
                put_record(Any, "a"),
                put_record(Version(3), "b"),
                put_record(Version(3), "b"),
            ),
            (
                put_record(Absent, "a"),
                delete_record(),
                check_record(Absent),
            ),
            (put_record(Any, "a"), delete_record(), delete_record()),
            (delete_record(), put_record(Any, "b"), put_record(Any, "b")),
            (
                delete_record(),
                put_record(Absent, "b"),
                put_record(Absent, "b"),
            ),
            (delete_record(), delete_record(), delete_record()),
            (delete_record(), check_record(Absent), check_record(Absent)),
            (
                check_record(Version(3)),
                put_record(Version(3), "b"),
                put_record(Version(3), "b"),
            ),
            (check_record(Absent), delete_record(), check_record(Absent)),
            (
                check_record(Version(3)),
                check_record(Version(3)),
                check_record(Version(3)),
            ),
            (
                put_record(Version(3), "a"),
                check_record(Version(3)),
                put_record(Version(3), "a"),
            ),
        ] {
            let found = join_writes(vec![earlier.clone()], vec![later.clone()]);
            assert_eq!(found, Ok(vec![joined]), "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn writes_that_no_commit_can_do_are_refused() {
        let (collection, key) = (key::HEAD, "k".to_owned());
        let contradiction = PlanJoinError::Contradiction {
            collection,
            key: key.clone(),
        };
        let guarded = PlanJoinError::GuardedRemoval { collection, key };
        for (earlier, later, expected) in [
            (
                put_record(Version(3), "a"),
                put_record(Version(4), "b"),
                &contradiction,
            ),
            (
                put_record(Version(3), "a"),
                put_record(Absent, "b"),
                &contradiction,
            ),
            (
                put_record(Absent, "a"),
                check_record(Version(1)),
                &contradiction,
            ),
            (
                check_record(Absent),
                put_record(Version(1), "b"),
                &contradiction,
            ),
            (put_record(Version(3), "a"), delete_record(), &guarded),
            (check_record(Version(3)), delete_record(), &guarded),
            (delete_record(), check_record(Version(3)), &guarded),
        ] {
            let found = join_writes(vec![earlier.clone()], vec![later.clone()]);
            assert_eq!(found.as_ref(), Err(expected), "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn log_writes_stay_in_order() {
        let trim = StoreWrite::Trim {
            log: "blob",
            partition: "k".to_owned(),
            below: 3,
        };
        let (earlier, later) = (vec![append_entry(4, "a"), trim], vec![append_entry(5, "b")]);
        let joined = join_writes(earlier.clone(), later.clone());
        assert_eq!(joined, Ok([earlier, later].concat()));
    }

    #[test]
    fn size_of_a_commit_is_bounded() {
        let many = |ops: usize| vec![append_entry(1, ""); ops];
        assert_eq!(check_size(&many(COMMIT_OPS_MAX)), Ok(()));
        let ops = COMMIT_OPS_MAX + 1;
        let refused = check_size(&many(ops));
        assert_eq!(refused, Err(PlanJoinError::TooManyOps { ops }));
        let large = |bytes: usize| vec![put_record(Any, &"x".repeat(bytes / 2 - 1)); 2];
        assert_eq!(check_size(&large(COMMIT_BYTES_MAX)), Ok(()));
        let bytes = COMMIT_BYTES_MAX + 2;
        let refused = check_size(&large(bytes));
        assert_eq!(refused, Err(PlanJoinError::TooManyBytes { bytes }));
        let error = Error::from(PlanJoinError::TooManyBytes { bytes });
        assert!(matches!(error.kind(), ErrorKind::Invalid { field, .. } if field == "commit"));
    }
}
