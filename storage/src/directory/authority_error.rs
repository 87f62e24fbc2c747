//! Why a directory or a file cannot be opened, as a person is told.

use std::io;

/// Reason why a directory or a file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's doc and message say what its fields are"
)]
pub enum AuthorityError {
    /// The path does not exist.
    #[error("{place} does not exist")]
    Missing { place: String },
    /// The path is a symbolic link where none may be.
    #[error("{place} is a symbolic link; put the file or directory itself there")]
    Link { place: String },
    /// The file has a second name, which may be anywhere: its owner is unknown.
    #[error(
        "{place} is a hard link: the file has another name, which may be outside; put a copy there"
    )]
    HardLink { place: String },
    /// A path or a link in it leads out of the directory that it must stay in.
    #[error("{place} leads out of its directory; copy what it points to")]
    Leaves { place: String },
    /// The path is not a directory.
    #[error("{place} is not a directory")]
    NotDirectory { place: String },
    /// The path is a directory, a pipe, a socket or a device.
    #[error("{place} is not a regular file")]
    NotRegular { place: String },
    /// The file was replaced between the check and the opening.
    #[error("{place} was replaced while it was opened; try again")]
    Replaced { place: String },
    /// The file is larger than the caller allows.
    #[error("{place} is larger than {bytes_max} bytes")]
    TooLarge { place: String, bytes_max: u64 },
    /// The operating system refuses the access.
    #[error("{place} cannot be opened")]
    Io { place: String, source: io::Error },
}

impl AuthorityError {
    /// Sorts an error of the operating system about `place`.
    pub fn from_io(place: &str, source: io::Error) -> Self {
        let place = place.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { place },
            io::ErrorKind::NotADirectory => Self::NotDirectory { place },
            // Only cap-std denies without a code of the operating system: the path led outside.
            io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => {
                Self::Leaves { place }
            }
            _ => Self::Io { place, source },
        }
    }

    /// The same error about a place that the caller names better.
    #[must_use]
    pub fn with_place(self, place: &str) -> Self {
        let place = place.to_owned();
        match self {
            Self::Missing { .. } => Self::Missing { place },
            Self::Link { .. } => Self::Link { place },
            Self::HardLink { .. } => Self::HardLink { place },
            Self::Leaves { .. } => Self::Leaves { place },
            Self::NotDirectory { .. } => Self::NotDirectory { place },
            Self::NotRegular { .. } => Self::NotRegular { place },
            Self::Replaced { .. } => Self::Replaced { place },
            Self::TooLarge { bytes_max, .. } => Self::TooLarge { place, bytes_max },
            Self::Io { source, .. } => Self::Io { place, source },
        }
    }

    /// True if the path does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}
