//! What a tenant's files and the operator's policy define: directives, models, settings, tools, knowledge.
//!
//! The host reads YAML and front matter here and gives JSON; which fields exist and what they may hold is decided in
//! the guest. Numbers keep the digits they were written with.

pub mod files;
pub mod front;
pub mod models;
pub mod yaml;

use crate::tools::ToolEntry;

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

/// A tool of a catalog as the document of kind `tool` that a library gives for its name.
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
