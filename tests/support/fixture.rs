//! A small library that tests run with: two directives, a chat's model, three tools, all in memory.

use std::collections::BTreeMap;
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::wit::registry;

/// Documents by (kind, name).
#[derive(Debug, Clone, Default)]
pub struct MapLibrary {
    documents: BTreeMap<(String, String), String>,
}

impl MapLibrary {
    /// An empty library.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a document.
    #[must_use]
    pub fn with(mut self, kind: &str, name: &str, json: &str) -> Self {
        self.documents
            .insert((kind.to_owned(), name.to_owned()), json.to_owned());
        self
    }

    /// Directives `work`, `poor` (it may spend 0.001 USD) and `boss` (it may spawn), model
    /// `default` at 1 and 2 USD a million, tools `read` (idempotent), `write` (not) and `ask`
    /// (needs consent).
    pub fn small() -> Self {
        Self::small_with_window(200_000)
    }

    /// The same, whose model has a window of so many tokens.
    pub fn small_with_window(window: u64) -> Self {
        let tool = |name: &str, idempotent: bool, consent: bool| {
            serde_json::json!({
                "name": name, "description": "a tool", "schema": {"type": "object"},
                "idempotent": idempotent, "consent": consent, "timeout": 5_000,
            })
            .to_string()
        };
        let tools = ["read", "write", "ask"].map(|tool| format!("execute.tool.{tool}"));
        let directive = |name: &str, limits: serde_json::Value| {
            serde_json::json!({
                "name": name, "body": "Do the work.",
                "front": {"capabilities": tools, "limits": limits},
            })
            .to_string()
        };
        let all = serde_json::json!({
            "name": "boss", "body": "Have it done.",
            "front": {"capabilities": ["execute.tool.*"], "limits": {"spend": "0.1"}},
        });
        Self::new()
            .with(
                "directive",
                "work",
                &directive("work", serde_json::json!({"turns": 12})),
            )
            .with("directive", "boss", &all.to_string())
            .with(
                "directive",
                "poor",
                &directive("poor", serde_json::json!({"spend": "0.001"})),
            )
            .with(
                "model",
                "default",
                &serde_json::json!({
                    "name": "default", "provider": "p", "window": window, "output": 400,
                    "prices": {"input": "1", "output": "2"},
                })
                .to_string(),
            )
            .with("tool", "read", &tool("read", true, false))
            .with("tool", "write", &tool("write", false, false))
            .with("tool", "ask", &tool("ask", false, true))
    }
}

/// A draft of a new thread of this directive, without inputs.
pub fn draft(directive: Option<&str>) -> registry::Draft {
    registry::Draft {
        directive: directive.map(str::to_owned),
        ..registry::Draft::default()
    }
}

/// A `models.yaml` with one model and tier, answered by `.ai/script.json`.
pub const SCRIPTED_MODELS: &str = r#"
providers: {local: {wire: scripted, file: script.json}}
models:
  tiny: {provider: local, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
tiers: {default: tiny}
"#;

impl TenantLibrary for MapLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        let key = (kind.to_owned(), name.to_owned());
        Ok(self.documents.get(&key).cloned())
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        let names = self.documents.keys().filter(|(of, _)| of == kind);
        Ok(names.map(|(_, name)| name.clone()).collect())
    }
}
