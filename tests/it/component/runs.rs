//! One directive end to end: created, started, driven, finished, read back.

use super::project::{describe_draft, engines, open_on, project_dir};
use std::sync::Arc;
use threadkeep::driver::{EventSink, RunEvent, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::storage::{StorageBackend, memory::MemoryStore};
use threadkeep_tests::fixture::SCRIPTED_MODELS;

const SCRIPT: &str = r#"[
  {"text": "Let me look.", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "It holds a note.", "usage": {"input": 150, "output": 20}}
]"#;

async fn run_to_end(engine: Engine, store: Option<Arc<dyn StorageBackend>>) {
    let (_kept, dir) = project_dir(SCRIPTED_MODELS);
    dir.write(".ai/script.json", SCRIPT).unwrap();
    let project = open_on(engine, dir, store, &[]);
    let thread = project.tenant().create(describe_draft()).await.unwrap();
    assert_eq!(thread.status, "created");
    let (sink, mut events) = EventSink::channel();
    let ended = project
        .driver()
        .run(&thread.id, None, &sink, &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!((ended.status.as_str(), ended.costs.turns), ("completed", 2));
    assert_eq!(ended.costs.spend_nanos, 100_000 + 20_000 + 150_000 + 40_000);
    assert_eq!(ended.result.as_deref(), Some(r#""It holds a note.""#));
    drop(sink);
    let mut text = String::new();
    while let Some(event) = events.recv().await {
        if let RunEvent::Text(more) = event {
            text.push_str(&more);
        }
    }
    assert_eq!(text, "Let me look.It holds a note.");
    let page = project
        .tenant()
        .events(&thread.id, 0, 100, None)
        .await
        .unwrap();
    let kinds: Vec<&str> = page
        .events
        .iter()
        .map(|event| event.kind.as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "message",
            "assistant_text",
            "tool_use",
            "result",
            "tool_result",
            "message",
            "result"
        ]
    );
    assert!(
        page.events[4].body.contains("remember the milk 漢🙂"),
        "{}",
        page.events[4].body
    );
}

#[tokio::test]
async fn a_directive_runs_to_its_end_in_memory() {
    for engine in engines() {
        run_to_end(engine, Some(Arc::new(MemoryStore::new()))).await;
    }
}

#[tokio::test]
async fn a_directive_runs_to_its_end_over_sqlite() {
    for engine in engines() {
        run_to_end(engine, None).await;
    }
}
