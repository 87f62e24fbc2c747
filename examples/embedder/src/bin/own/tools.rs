//! Custom tools: one that looks words up.

use serde_json::Value;
use std::time::Duration;
use threadkeep::models::BoxFuture;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};

pub struct DeskTools;

impl ToolSet for DeskTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        let schema = concat!(
            r#"{"type": "object", "properties": {"word": {"type": "string"}},"#,
            r#" "required": ["word"]}"#
        );
        let time = Duration::from_secs(5);
        let look_up = ToolEntry::new("look_up", "Looks a word up at the desk.", schema, time);
        // Running it twice has the effect of running it once, so it may run again after a process
        // has died during it.
        vec![look_up.idempotent()]
    }

    fn call<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            match (name, arguments["word"].as_str()) {
                ("look_up", Some("hours")) => ToolResult::ok("open from nine to five"),
                ("look_up", Some(word)) => {
                    ToolResult::failure(format!("the desk knows no {word}: ask for hours"))
                }
                ("look_up", None) => ToolResult::failure("word is missing: say what to look up"),
                _ => ToolResult::failure(format!("there is no tool {name}")),
            }
        })
    }
}
