//! Errors of writing and reading blobs.

use super::size_text;
use threadkeep_storage::StorageError;

/// Error of writing or reading a blob; `C` is that of a call of the component about its thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError<C: std::error::Error + 'static> {
    /// The blob has no bytes. Nothing was written.
    #[error("it is empty")]
    Empty,
    /// Nothing was written.
    #[error("it has {}, and at most 20 MiB are kept", size_text(*.bytes))]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Nothing was written: providers refuse larger images, each time that the thread is sent.
    #[error("it has {}, and models take images of at most 3.75 MB", size_text(*.bytes))]
    ImageTooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Nothing was written: the bytes are not those of an image that models take.
    #[error("it is no png, jpeg, gif or webp image")]
    NotAnImage,
    /// Nothing was written: the thread takes nothing more.
    #[error("the thread {thread} is {status}: it takes nothing more")]
    Ended {
        /// The thread.
        thread: String,
        /// Its status.
        status: String,
    },
    /// Nothing was written: other writers changed the chain each time.
    #[error("the chain of the thread changed each time: try again")]
    Contention,
    /// The chain has no blob of this name.
    #[error("there is no blob {0}")]
    Missing(String),
    /// The stored lines or record are not those that were written.
    #[error("the blob {name} is damaged: {problem}")]
    Damaged {
        /// The hash, or the key of the record.
        name: String,
        /// A sentence for a person.
        problem: &'static str,
    },
    /// The store gave no answer, or refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The component gave no answer about the thread, or refused.
    #[error(transparent)]
    Call(C),
}

impl<C: std::error::Error + 'static> BlobError<C> {
    /// Returns the stable code by which a command names the error; `None` for that of a call, which
    /// has one of its own.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Call(_) => None,
            Self::Ended { .. } => Some("refused"),
            Self::Storage(StorageError::QuotaExceeded { .. }) => Some("full"),
            Self::Storage(_) | Self::Contention => Some("unavailable"),
            Self::Empty
            | Self::TooLarge { .. }
            | Self::ImageTooLarge { .. }
            | Self::NotAnImage
            | Self::Missing(_)
            | Self::Damaged { .. } => Some("invalid"),
        }
    }

    /// Makes the error of a blob, named by its hash or the key of its record, that is not what was
    /// written.
    pub fn from_damage(name: &str, problem: &'static str) -> Self {
        Self::Damaged {
            name: name.replace('\u{1}', " "),
            problem,
        }
    }
}
