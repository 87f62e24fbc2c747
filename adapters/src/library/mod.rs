//! Definitions from a tenant's files and the operator's policy: directives, models, settings,
//! tools, knowledge.
//!
//! The host parses YAML and front matter here and returns JSON. The guest decides which fields
//! exist and which values they may have. Numbers keep the digits they were written with, and the
//! guest parses amounts: `0.10` is exactly ten cents.

pub mod files;
pub mod front_matter;
mod library_files;
pub mod models;
pub mod yaml;

pub use library_files::LibraryFiles;

use crate::ToolEntry;

/// An error of reading a document from the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// A file exists but is not acceptable, or a name is not valid.
    #[error("{place}: {problem}")]
    Invalid {
        /// File and line, such as `.ai/directives/research.md:3`.
        place: String,
        /// The offending value; empty if it is long or secret.
        value: String,
        /// A sentence that says what is wrong and what to do.
        problem: String,
        /// The valid name that was probably meant.
        nearest: Option<String>,
    },
    /// The library cannot be read now.
    #[error("the library cannot be read: {message}")]
    Unavailable {
        /// A description of the failure, for a person.
        message: String,
    },
    /// Any other failure.
    #[error("{message} ({code})")]
    Other {
        /// A short stable word.
        code: &'static str,
        /// A description of the failure, for a person.
        message: String,
    },
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name; `None` if it is not UTF-8.
    pub name: Option<String>,
    /// Its kind. A link is not followed.
    pub kind: EntryKind,
}

/// The kind of an entry, as far as a library tells entries apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file, a link or anything else.
    Other,
}

impl LibraryError {
    /// Makes the error of a file that exists and is not acceptable, or of a name.
    pub fn invalid(
        place: impl Into<String>,
        value: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self::Invalid {
            place: place.into(),
            value: value.into(),
            problem: problem.into(),
            nearest: None,
        }
    }
}

/// Most names of one [`TenantLibrary::documents`], and most names of a listing: the first in byte
/// order.
pub const NAMES_MAX: usize = 500;

/// Provides documents by kind and name. `wit/library.wit` documents the JSON of each kind.
pub trait TenantLibrary: Send + Sync {
    /// Returns the document of a name; `None` if it does not exist.
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError>;

    /// Returns the names of a kind, at most [`NAMES_MAX`].
    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError>;

    /// Returns one answer for each name, in their order; without names every document of the kind.
    /// A library that is asked over a network answers all of them at once here.
    fn documents(&self, kind: &str, names: &[String]) -> Result<Vec<Option<String>>, LibraryError> {
        let all;
        let names = match names {
            [] => {
                all = self.names(kind)?;
                &all
            }
            names => names,
        };
        let documents = names.iter().map(|name| self.document(kind, name));
        documents.collect()
    }
}

/// Returns the document of kind `tool` for a tool of a catalog, as a library provides it.
///
/// # Errors
/// If its schema is not JSON.
pub fn tool_document(tool: &ToolEntry) -> Result<String, LibraryError> {
    let schema: serde_json::Value =
        serde_json::from_str(&tool.schema).map_err(|error| LibraryError::Other {
            code: "bad_schema",
            message: format!("the schema of the tool {} is not JSON: {error}", tool.name),
        })?;
    let document = serde_json::json!({
        "name": tool.name,
        "description": tool.description,
        "schema": schema,
        "idempotent": tool.idempotent,
        "consent": tool.consent,
        "timeout": u64::try_from(tool.timeout.as_millis()).unwrap_or(u64::MAX),
    });
    Ok(document.to_string())
}
