//! In process: a run whose store dies before or after its n-th commit, for every n; then another process recovers the
//! thread and carries it to its end.

use crate::component::project::engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::component::Context;
use threadkeep::driver::{Driver, Sink, Stop};
use threadkeep::engine::Engine;
use threadkeep::models::scripted::Scripted;
use threadkeep::models::{BoxFuture, OneProvider};
use threadkeep::storage::{Storage, memory::MemoryStore};
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, Tools};
use threadkeep::wit::registry;
use threadkeep_tests::auditor::audit;
use threadkeep_tests::faulty::{Death, Faulty};
use threadkeep_tests::fixture::MapLibrary;

const SCRIPT: &str = r#"[
  {"text": "one", "calls": [{"name": "read", "arguments": {}}, {"name": "write", "arguments": {"n": 1}}]},
  {"calls": [{"name": "nothing", "arguments": {}}]},
  {"calls": [{"name": "write", "arguments": {"n": 2}}]},
  {"text": "done"}
]"#;

/// Counts how often each tool really ran.
#[derive(Default)]
struct Counting {
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Tools for Counting {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        let counter = if name == "write" {
            &self.writes
        } else {
            &self.reads
        };
        counter.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { ToolResult::ok("ok") })
    }
}

fn tenant(engine: &Engine, storage: Arc<dyn Storage>) -> Tenant {
    let context = Context::new(storage, Arc::new(MapLibrary::small()));
    Tenant::new(engine.clone(), context)
}

fn driver(tenant: &Tenant, tools: &Arc<Counting>, nonce: &str) -> Driver {
    let script = Arc::new(Scripted::parse(SCRIPT).unwrap());
    Driver::new(
        tenant.clone(),
        Arc::new(OneProvider::new(script)),
        Arc::<Counting>::clone(tools),
        nonce,
    )
}

fn draft() -> registry::Draft {
    registry::Draft {
        id: Some(THREAD.to_owned()),
        ..threadkeep_tests::fixture::draft(Some("work"))
    }
}

const THREAD: &str = "work-1-abcdef";

/// Run until the store dies; the number of commits that were asked for and what is left.
async fn die(engine: &Engine, death: Death, tools: &Arc<Counting>) -> (u64, Arc<MemoryStore>) {
    let memory = Arc::new(MemoryStore::new());
    let faulty = Arc::new(Faulty::new(Arc::<MemoryStore>::clone(&memory), death));
    let dying = tenant(engine, Arc::<Faulty>::clone(&faulty));
    if dying.create(draft()).await.is_ok() {
        let _ = driver(&dying, tools, "first")
            .run(THREAD, None, &Sink::none(), &Stop::never())
            .await;
    }
    (faulty.commits(), memory)
}

/// What a second process makes of it.
async fn carry_on(engine: &Engine, memory: &Arc<MemoryStore>, tools: &Arc<Counting>) {
    let second = tenant(engine, Arc::<MemoryStore>::clone(memory));
    if second.create(draft()).await.is_err() {
        let held = second.recover(Vec::new(), None).await.unwrap().held;
        let dead: Vec<String> = held.into_iter().map(|lease| lease.holder).collect();
        second.recover(dead, None).await.unwrap();
    }
    let findings = audit(&**memory);
    assert!(findings.is_empty(), "{findings:#?}");
    let thread = second.get(THREAD).await.unwrap();
    if thread.status != "completed" {
        assert!(
            ["created", "suspended"].contains(&thread.status.as_str()),
            "{}",
            thread.status
        );
        let ended = driver(&second, tools, "second")
            .run(THREAD, None, &Sink::none(), &Stop::never())
            .await
            .unwrap();
        assert_eq!(ended.status, "completed");
    }
    let findings = audit(&**memory);
    assert!(findings.is_empty(), "{findings:#?}");
}

#[tokio::test]
async fn death_at_every_commit_loses_nothing_and_repeats_nothing() {
    let engine = engine();
    let whole = Arc::new(Counting::default());
    let (commits, _) = die(&engine, Death::Before(u64::MAX), &whole).await;
    assert!(commits > 6, "{commits}");
    println!("commits of the whole run: {commits}");
    for n in 1..=commits {
        for death in [
            Death::Before(n),
            Death::After(n),
            Death::Unknown(n),
            Death::UnknownLost(n),
        ] {
            let tools = Arc::new(Counting::default());
            let (_, memory) = die(&engine, death, &tools).await;
            carry_on(&engine, &memory, &tools).await;
            // A call that is not idempotent never runs twice: once, or interrupted and then not at all.
            let writes = tools.writes.load(Ordering::SeqCst);
            assert!(writes <= 2, "{death:?}: {writes} writes");
        }
    }
}
