//! A host's own tools: approved calls, and tools that ask by themselves.

use crate::component::fixture::{assert_sound, tenant};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::driver::{Driver, EventSink, StopReceiver};
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::models::{BoxFuture, OneProvider};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tools::{JoinedTools, ToolEntry, ToolResult, ToolSet};
use threadkeep::wit::registry;
use threadkeep::wit::runner::SignalKind;

/// Tools that ask for consent themselves before they write.
#[derive(Default)]
struct CarefulTools {
    asked: AtomicU64,
    written: AtomicU64,
}

impl ToolSet for CarefulTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        let timeout = std::time::Duration::from_secs(5);
        vec![ToolEntry::new(
            "write",
            "writes",
            r#"{"type":"object"}"#,
            timeout,
        )]
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { ToolResult::needs_consent("it would overwrite notes.txt") })
    }

    fn call_approved<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        self.written.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { ToolResult::ok("written") })
    }
}

const SCRIPT: &str = r#"[
  {"calls": [{"name": "write", "arguments": {}}]},
  {"text": "done"}
]"#;

#[tokio::test]
async fn tool_that_asks_is_called_again_once_it_is_approved() {
    let store = Arc::new(MemoryStore::new());
    let tenant = tenant(Arc::<MemoryStore>::clone(&store));
    let tools = Arc::new(CarefulTools::default());
    let joined = JoinedTools::new(vec![Arc::<CarefulTools>::clone(&tools)]);
    let script = Arc::new(ScriptedProvider::parse(SCRIPT).unwrap());
    let provider = Arc::new(OneProvider::new(script));
    let driver = Driver::new(tenant.clone(), provider, Arc::new(joined), "own");
    let draft = registry::Draft {
        id: Some("w".to_owned()),
        ..threadkeep_tests::fixture::draft(Some("work"))
    };
    tenant.create(draft).await.unwrap();
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let ended = driver.run("w", None, &sink, &stop).await.unwrap();
    let cause = ended.cause.unwrap();
    assert_eq!(cause.code, "approval_needed");
    assert!(
        cause.message.contains("it would overwrite notes.txt"),
        "{}",
        cause.message
    );
    let decision = json!({"call": "call_2_0", "approve": true}).to_string();
    let what = SignalKind::Decision(decision);
    tenant
        .signal_tip(&mut "w".to_owned(), "k", what)
        .await
        .unwrap();
    let ended = driver.run("w", None, &sink, &stop).await.unwrap();
    assert_eq!(ended.status, "completed");
    let counts = (
        tools.asked.load(Ordering::SeqCst),
        tools.written.load(Ordering::SeqCst),
    );
    assert_eq!(counts, (1, 1), "asked and written");
    assert_sound(&*store);
}
