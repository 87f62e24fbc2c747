//! A custom library: the documents that a project keeps in files, given as JSON. `wit/library.wit`
//! says what each kind holds.

use serde_json::json;
use threadkeep::library::{LibraryError, TenantLibrary, tool_document};
use threadkeep::tools::ToolEntry;

pub struct JsonLibrary {
    /// The entries of the tools.
    pub catalog: Vec<ToolEntry>,
}

impl TenantLibrary for JsonLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        Ok(match (kind, name) {
            ("directive", "answer") => Some(directive()),
            ("model", "default") => Some(model()),
            ("tool", name) => {
                let found = self.catalog.iter().find(|tool| tool.name == name);
                found.map(tool_document).transpose()?
            }
            ("settings", "preset") => Some(json!({"name": "strict"}).to_string()),
            _ => None,
        })
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        Ok(match kind {
            "directive" => vec!["answer".to_owned()],
            "model" => vec!["default".to_owned()],
            "tool" => self.catalog.iter().map(|tool| tool.name.clone()).collect(),
            _ => Vec::new(),
        })
    }
}

fn directive() -> String {
    json!({
        "name": "answer",
        "body": "Answer what you are asked; look up what you do not know.",
        "front": {"capabilities": ["execute.tool.look_up"], "limits": {"turns": 4}},
    })
    .to_string()
}

/// Prices are USD per million tokens, as text.
fn model() -> String {
    json!({
        "name": "default", "provider": "clerk", "window": 8000, "output": 400,
        "prices": {"input": "1.00", "output": "2.00"},
    })
    .to_string()
}
