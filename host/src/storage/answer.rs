//! Records that are answered together: a few large ones are as much as may be.

use super::{ANSWER_BYTES_MAX, Item, Outcome, StorageError};

/// The answer of a `get`, or the records that a conflict finds, while they are read one after the other. No more than
/// [`ANSWER_BYTES_MAX`] of values are ever in it.
#[derive(Debug, Default)]
pub struct Answer {
    items: Vec<Item>,
    bytes: usize,
}

impl Answer {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more.
    ///
    /// # Errors
    /// [`StorageError::TooLarge`] if that is too much: the answer of a `get` is whole or none.
    pub fn push(&mut self, item: Item) -> Result<(), StorageError> {
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

    /// One more, if it fits: of a conflict those are left out that do not.
    pub fn push_if_it_fits(&mut self, item: Item) {
        // The records that fit are the answer; whoever needs the others asks for them.
        let _ = self.push(item);
    }

    /// What a store of somebody's own answered to a `get`, if it is not too much.
    pub(crate) fn whole(items: Vec<Item>) -> Result<Vec<Item>, StorageError> {
        let mut answer = Self::new();
        items.into_iter().try_for_each(|item| answer.push(item))?;
        Ok(answer.items)
    }

    /// What a store of somebody's own found in a conflict, without what is too much.
    pub(crate) fn fitting(outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Committed => Outcome::Committed,
            Outcome::Conflict(found) => {
                let mut answer = Self::new();
                found
                    .into_iter()
                    .for_each(|item| answer.push_if_it_fits(item));
                Outcome::Conflict(answer.items)
            }
        }
    }

    /// All of them.
    pub fn into_items(self) -> Vec<Item> {
        self.items
    }
}
