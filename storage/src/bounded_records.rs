//! Records that are returned together, with a bound on the sum of their sizes.

use super::{ANSWER_BYTES_MAX, StorageError, StoredRecord};

/// Collects the records of a `get` while they are read one after the other.
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

    /// The records that an embedder's store returned from a `get`, refused if they are too large.
    ///
    /// # Errors
    /// [`StorageError::TooLarge`], as [`BoundedRecords::push`].
    pub fn check_all_fit(items: Vec<StoredRecord>) -> Result<Vec<StoredRecord>, StorageError> {
        let mut answer = Self::new();
        items.into_iter().try_for_each(|item| answer.push(item))?;
        Ok(answer.items)
    }

    /// The collected records.
    pub fn into_items(self) -> Vec<StoredRecord> {
        self.items
    }
}
