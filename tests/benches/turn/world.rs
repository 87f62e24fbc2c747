//! The environment of every candidate: one library of documents, one clock, one script of results.

use std::sync::Arc;
use threadkeep::component::TenantContext;
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::storage::StorageBackend;

/// Caps and window that no benchmark reaches.
const DIRECTIVE: &str = r#"{"name":"bench","body":"Work.",
    "front":{"capabilities":["execute.tool.*"],
"limits":{"turns":100000000,"tokens":100000000000,"spend":"1000000","duration":"100000000"}}}"#;
const PLAIN: &str = r#"{"name":"plain","body":"Work.","front":{"capabilities":["execute.tool.*"],
"limits":{"turns":100000000,"tokens":100000000000,"duration":"100000000"}}}"#;
const MODEL: &str = r#"{"name":"default","provider":"none","window":1000000000000,"output":4096,
"prices":{"input":"0.15","output":"0.60"}}"#;
/// Holds and settles nothing: its account is never written.
const FREE: &str = r#"{"name":"free","provider":"none","window":1000000000000,"output":4096,
"prices":{"input":"0","output":"0"}}"#;
const TOOL: &str = r#"{"name":"read_file","description":"Read a file.","idempotent":true}"#;

/// The name of the directive.
pub const DIRECTIVE_NAME: &str = "bench";
/// A directive that names no spend: a child that runs it draws on its parent's account.
pub const PLAIN_NAME: &str = "plain";
/// The model that costs nothing.
pub const FREE_NAME: &str = "free";
/// The holder of the runs.
pub const HOLDER: &str = "bench/1";

/// A driver that can perform the steps of a run.
pub trait BenchCandidate {
    /// Submits the reply, or, if a call is open, its result: one commit.
    fn step(&mut self, step: usize, blocks: &str, content: &str);
}

/// The library of the documents above.
pub struct BenchLibrary;

impl TenantLibrary for BenchLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        let text = match (kind, name) {
            ("directive", DIRECTIVE_NAME) => DIRECTIVE,
            ("directive", PLAIN_NAME) => PLAIN,
            ("model", FREE_NAME) => FREE,
            ("model", _) => MODEL,
            ("tool", "read_file") => TOOL,
            _ => return Ok(None),
        };
        Ok(Some(text.to_owned()))
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        let names: &[&str] = if kind == "tool" { &["read_file"] } else { &[] };
        Ok(names.iter().map(|&name| name.to_owned()).collect())
    }
}

/// Creates a tenant's context over a store.
pub fn context(storage: &Arc<dyn StorageBackend>) -> TenantContext {
    TenantContext::new(Arc::clone(storage), Arc::new(BenchLibrary))
}

/// Returns about 2 KB of text, different for each step.
pub fn prose(step: usize) -> String {
    format!(
        "{step}: {}",
        "The quick brown fox jumps over the lazy dog.\n".repeat(44)
    )
}

/// Returns a reply that calls one tool, in the form of `llm.completion`.
pub fn blocks(step: usize) -> String {
    let text = prose(step).replace('\n', "\\n");
    format!(
        r#"[{{"type":"text","text":"{text}"}},{{{},"arguments":"{}"}}]"#,
        r#""type":"tool_use","id":"call","name":"read_file""#,
        format_args!(r#"{{\"path\":\"notes/{step}.txt\"}}"#)
    )
}
