//! Death of the store in process: before or after a run's n-th commit, for every n; then another
//! process recovers the thread and carries it to its end.

use crate::component::fixture::{CountingTools, scripted_driver, tenant};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use threadkeep::driver::{EventSink, StopReceiver};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit::registry;
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::FaultyStore;

const SCRIPT: &str = r#"[
  {"text": "one", "calls": [{"name": "read", "arguments": {}}, {"name": "write",
      "arguments": {"n": 1}}]},
  {"calls": [{"name": "nothing", "arguments": {}}]},
  {"calls": [{"name": "write", "arguments": {"n": 2}}]},
  {"text": "done"}
]"#;

fn draft() -> registry::Draft {
    registry::Draft {
        id: Some(THREAD.to_owned()),
        ..threadkeep_tests::fixture::draft(Some("work"))
    }
}

const THREAD: &str = "work-1-abcdef";

/// Runs until the store dies; returns the tools, which have counted their calls.
async fn run_until_death(store: Arc<FaultyStore>) -> Arc<CountingTools> {
    let (dying, tools) = (tenant(store), Arc::new(CountingTools::default()));
    if dying.create(draft()).await.is_ok() {
        let _ = scripted_driver(&dying, SCRIPT, &tools, "first")
            .run(THREAD, None, &EventSink::none(), &StopReceiver::never())
            .await;
    }
    tools
}

/// Recovers the thread in a second process and carries it to its end.
async fn carry_on(memory: &Arc<MemoryStore>, tools: &Arc<CountingTools>) {
    let second = tenant(Arc::<MemoryStore>::clone(memory));
    if second.create(draft()).await.is_err() {
        let held = second.recover(Vec::new(), None).await.unwrap().held;
        let dead: Vec<String> = held.into_iter().map(|lease| lease.holder).collect();
        second.recover(dead, None).await.unwrap();
    }
    let thread = second.get(THREAD).await.unwrap();
    if thread.status != "completed" {
        assert!(
            ["created", "suspended"].contains(&thread.status.as_str()),
            "{}",
            thread.status
        );
        let ended = scripted_driver(&second, SCRIPT, tools, "second")
            .run(THREAD, None, &EventSink::none(), &StopReceiver::never())
            .await
            .unwrap();
        assert_eq!(ended.status, "completed");
    }
    // A call that is not idempotent never runs twice: once, or interrupted and then not at all.
    let writes = tools.writes.load(Ordering::SeqCst);
    assert!(writes <= 2, "{writes} writes");
}

#[tokio::test]
async fn death_at_every_commit_loses_nothing_and_repeats_nothing() {
    let work = async |_: &_, store| run_until_death(store).await;
    let carry_on = async |memory: &_, tools, _| carry_on(memory, &tools).await;
    let commits = die_at_every_commit(work, carry_on).await;
    assert!(commits > 6, "{commits}");
}
