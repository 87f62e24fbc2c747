//! What a tenant's files and the operator's policy define: directives, models, settings, tools, knowledge.
//!
//! The host reads YAML and front matter here and gives JSON; which fields exist and what they may hold is decided in
//! the guest. Numbers keep the digits they were written with.

pub mod files;
pub mod front;
pub mod models;
pub mod yaml;

/// Why a document cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// A file is there and is not what it should be, or a name is none.
    #[error("{place}: {problem}")]
    Invalid {
        /// File and line, such as `.ai/directives/research.md:3`.
        place: String,
        /// What stands there; empty if it is long or secret.
        value: String,
        /// What is wrong with it and what to do, as a sentence.
        problem: String,
        /// The valid name that was probably meant.
        nearest: Option<String>,
    },
    /// It cannot be reached now.
    #[error("the library cannot be read: {message}")]
    Unavailable {
        /// What failed, for a person.
        message: String,
    },
    /// Any other failure.
    #[error("{message} ({code})")]
    Other {
        /// A short stable word.
        code: &'static str,
        /// What failed, for a person.
        message: String,
    },
}

/// Gives documents by kind and name; the JSON of each kind is documented in `wit/library.wit`.
pub trait Library: Send + Sync {
    /// At most one document for a name, none if there is no such thing; all names of the kind if `name` is empty.
    fn get(&self, kind: &str, name: &str) -> Result<Vec<String>, LibraryError>;
}
