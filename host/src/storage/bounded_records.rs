//! Records that are returned together, with a bound on the sum of their sizes.

use super::{ANSWER_BYTES_MAX, CommitOutcome, StorageError, StoredRecord};

/// Collects the records of a `get`, or of a conflict, while they are read one after the other.
/// Never contains more than [`ANSWER_BYTES_MAX`] of values.
#[derive(Debug, Default)]
pub struct BoundedRecords {
    items: Vec<StoredRecord>,
    bytes: usize,
}

impl BoundedRecords {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`StorageError::TooLarge`] if the sum would be too large: a `get` returns all records or
    /// none.
    pub fn push(&mut self, item: StoredRecord) -> Result<(), StorageError> {
        let bytes = self.bytes + item.value.len();
        if bytes > ANSWER_BYTES_MAX {
            return Err(StorageError::TooLarge {
                what: "answer",
                limit: ANSWER_BYTES_MAX as u64,
                actual: bytes as u64,
            });
        }
        self.bytes = bytes;
        self.items.push(item);
        Ok(())
    }

    /// Adds a record if it fits: a conflict leaves out those that do not.
    pub fn push_if_it_fits(&mut self, item: StoredRecord) {
        // Records that do not fit are left out; a caller that needs them asks for them.
        let _ = self.push(item);
    }

    /// The records that an embedder's store returned from a `get`, refused if they are too large.
    pub(crate) fn check_all_fit(
        items: Vec<StoredRecord>,
    ) -> Result<Vec<StoredRecord>, StorageError> {
        let mut answer = Self::new();
        items.into_iter().try_for_each(|item| answer.push(item))?;
        Ok(answer.items)
    }

    /// The outcome of an embedder's store, without the records of a conflict that do not fit.
    pub(crate) fn trim_conflict(outcome: CommitOutcome) -> CommitOutcome {
        match outcome {
            CommitOutcome::Committed => CommitOutcome::Committed,
            CommitOutcome::Conflict(found) => {
                let mut answer = Self::new();
                found
                    .into_iter()
                    .for_each(|item| answer.push_if_it_fits(item));
                CommitOutcome::Conflict(answer.items)
            }
        }
    }

    /// The collected records.
    pub fn into_items(self) -> Vec<StoredRecord> {
        self.items
    }
}
