//! An external loop through the component, whose store dies before or after its n-th commit, for
//! every n; then another process recovers the thread and carries the same loop to its end.

use super::{call_event, message_event, result_event};
use crate::component::project::engine;
use serde_json::Value;
use std::sync::Arc;
use threadkeep::clock::{HostClock, SystemClock};
use threadkeep::component::{SystemRandom, TenantContext};
use threadkeep::engine::Engine;
use threadkeep::error::CallError;
use threadkeep::storage::{StorageBackend, memory::MemoryStore};
use threadkeep::tenant::Tenant;
use threadkeep::wit::{self, ledger, registry};
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::FaultyStore;
use threadkeep_tests::fixture::MapLibrary;

const THREAD: &str = "chat-1-abcdef";

fn tenant(engine: &Engine, storage: Arc<dyn StorageBackend>) -> Tenant {
    let context = TenantContext {
        storage,
        library: Arc::new(MapLibrary::small()),
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    Tenant::new(engine.clone(), context)
}

/// The loop's messages, one append each.
fn script() -> [Vec<Value>; 3] {
    [
        vec![message_event("user", "hi"), call_event("a")],
        vec![result_event("a")],
        vec![message_event("assistant", "done")],
    ]
}

/// Runs the loop from the end of the history: each append is made once, whatever happened before.
async fn carry_loop(tenant: &Tenant, holder: &str) -> Result<(), CallError> {
    let now = SystemClock.now();
    let deadline = wit::Instant {
        seconds: now.seconds + 60,
        nanos: now.nanos,
    };
    let opened = tenant.open_thread(THREAD, holder, deadline).await?;
    let events = tenant.events(THREAD, 0, 500, None).await?.events;
    let has = |kind: &str, text: &str| {
        events
            .iter()
            .any(|e| e.kind == kind && e.body.contains(text))
    };
    // A call that was open when its loop died has its result: interrupted.
    let done = [
        has("tool_use", "read"),
        has("tool_result", "read"),
        has("message", "done"),
    ];
    let estimate = ledger::Estimate::Amount(5_000);
    let held = tenant.hold(THREAD, opened.token, "only", estimate, deadline);
    let held = held.await?;
    // A repeated hold returns the same call, and its bill is recorded once, whether it was charged
    // meanwhile or not.
    let bill = ledger::Bill::Amount(1_234);
    let mut version = tenant.settle(THREAD, held.version, bill).await?;
    for (events, done) in script().into_iter().zip(done) {
        if !done {
            let texts = events.iter().map(Value::to_string).collect();
            let written = tenant
                .append(THREAD, Some(opened.token), version, texts)
                .await?;
            version = written.version;
        }
    }
    tenant
        .close_thread(THREAD, opened.token, "completed", None)
        .await?;
    Ok(())
}

async fn create(tenant: &Tenant) -> Result<wit::Thread, CallError> {
    let draft = registry::Draft {
        id: Some(THREAD.to_owned()),
        ..threadkeep_tests::fixture::draft(None)
    };
    tenant.create(draft).await
}

/// Carries the loop to its end, in another process.
async fn carry_on(second: &Tenant) {
    // The thread exists already, or it is created here.
    let _ = create(second).await;
    second
        .recover(vec!["first/1".to_owned()], None)
        .await
        .unwrap();
    if second.get(THREAD).await.unwrap().status != "completed" {
        carry_loop(second, "second/1").await.unwrap();
    }
    let events = second.events(THREAD, 0, 500, None).await.unwrap().events;
    for (kind, count) in [("tool_use", 1), ("tool_result", 1)] {
        let found = events.iter().filter(|event| event.kind == kind).count();
        assert_eq!(found, count, "{kind}");
    }
    assert_eq!(second.get(THREAD).await.unwrap().status, "completed");
    let account = second.account(THREAD).await.unwrap();
    assert_eq!((account.spent, account.held), (1_234, 0));
}

#[tokio::test]
async fn external_loop_survives_death_at_every_commit() {
    let engine = engine();
    let work = async |_: &_, store: Arc<FaultyStore>| {
        let dying = tenant(&engine, store);
        if create(&dying).await.is_ok() {
            let _ = carry_loop(&dying, "first/1").await;
        }
    };
    let carry_on = async |memory: &Arc<_>, (), _| {
        carry_on(&tenant(&engine, Arc::<MemoryStore>::clone(memory))).await;
    };
    let commits = die_at_every_commit(work, carry_on).await;
    assert_eq!(
        commits, 8,
        "create, open, hold, settle, three appends, close"
    );
}
