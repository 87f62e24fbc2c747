//! The death of the store at each commit of a run that is approved: the tool runs at most once, and
//! no decision is lost or taken twice.

use crate::component::fixture::{CountingTools, assert_sound, scripted_driver, tenant};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use threadkeep::driver::{EventSink, RunEvent, StopReceiver};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit;
use threadkeep::wit::registry;
use threadkeep::wit::runner::SignalKind;
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};

/// The tool that needs consent is counted among the reads.
const SCRIPT: &str = r#"[
  {"text": "one", "calls": [{"name": "ask", "arguments": {"n": 1}}, {"name": "ask",
      "arguments": {"n": 2}}, {"name": "write", "arguments": {}}]},
  {"text": "done"}
]"#;

const THREAD: &str = "work-1-abcdef";

fn draft() -> registry::Draft {
    registry::Draft {
        id: Some(THREAD.to_owned()),
        ..threadkeep_tests::fixture::draft(Some("work"))
    }
}

async fn run(tenant: &Tenant, tools: &Arc<CountingTools>, nonce: &str) -> Option<String> {
    let driver = scripted_driver(tenant, SCRIPT, tools, nonce);
    let ended = driver
        .run(THREAD, None, &EventSink::none(), &StopReceiver::never())
        .await;
    ended.ok().map(|ended| ended.status)
}

/// Approves the first call and denies the second, where they wait: a reply that was lost is asked
/// for again, and its calls have other ids.
async fn decide(tenant: &Tenant) -> bool {
    let Ok(thread) = tenant.get(THREAD).await else {
        return false;
    };
    let more: Value = serde_json::from_str(&thread.more).unwrap();
    for call in more["waits_for"]["calls"].as_array().into_iter().flatten() {
        let id = &call["call"];
        let decision = match call["arguments"].as_str().unwrap().contains('1') {
            true => json!({"call": id, "approve": true}),
            false => json!({"call": id, "approve": false, "note": "no"}),
        };
        let what = SignalKind::Decision(decision.to_string());
        let key = format!("decide {id}");
        if tenant.signal(THREAD, &key, what).await.is_err() {
            return false;
        }
    }
    true
}

/// Runs, decides and runs on until the store dies; returns the tools, which have counted their
/// calls.
async fn run_until_death(store: Arc<FaultyStore>) -> Arc<CountingTools> {
    let (dying, tools) = (tenant(store), Arc::new(CountingTools::default()));
    if dying.create(draft()).await.is_ok()
        && run(&dying, &tools, "first").await.is_some()
        && decide(&dying).await
    {
        run(&dying, &tools, "second").await;
    }
    tools
}

/// Another process recovers the thread, decides again with the same keys, and carries it to its
/// end.
async fn carry_on(memory: &Arc<MemoryStore>, tools: &Arc<CountingTools>) {
    let second = tenant(Arc::<MemoryStore>::clone(memory));
    if second.create(draft()).await.is_err() {
        let held = second.recover(Vec::new(), None).await.unwrap().held;
        let dead: Vec<String> = held.into_iter().map(|lease| lease.holder).collect();
        second.recover(dead, None).await.unwrap();
    }
    for nonce in ["third", "fourth", "fifth"] {
        let thread = second.get(THREAD).await.unwrap();
        match thread.status.as_str() {
            "completed" => break,
            "suspended" if waits_for_decision(&thread) => assert!(decide(&second).await),
            "created" | "suspended" => {}
            status => panic!("{status}"),
        }
        run(&second, tools, nonce).await;
        assert_sound(&**memory);
    }
    assert_eq!(second.get(THREAD).await.unwrap().status, "completed");
}

/// Checks that the tools ran at most once, and that each decision was taken once.
async fn check_end(memory: &Arc<MemoryStore>, tools: &CountingTools, death: DeathPoint) {
    let asked = tools.reads.load(Ordering::SeqCst);
    assert!(asked <= 1, "the approved call ran {asked} times");
    assert!(death != DeathPoint::NEVER || asked == 1, "it never ran");
    let writes = tools.writes.load(Ordering::SeqCst);
    assert!(writes <= 1, "{writes} writes");
    let text = transcript(memory).await;
    let decisions = text.matches("\"type\":\"decision\"").count();
    assert_eq!(decisions, 2, "each decision once\n{text}");
    assert_eq!(text.matches("denied: no").count(), 1);
}

fn waits_for_decision(thread: &wit::Thread) -> bool {
    thread.more.contains("\"waits_for\":{\"calls\"")
}

#[tokio::test]
async fn approval_killed_at_every_commit_runs_the_tool_at_most_once() {
    let work = async |_: &_, store| run_until_death(store).await;
    let carry_on = async |memory: &Arc<_>, tools: Arc<_>, death| {
        carry_on(memory, &tools).await;
        check_end(memory, &tools, death).await;
    };
    let commits = die_at_every_commit(work, carry_on).await;
    assert!(commits > 6, "{commits}");
}

async fn transcript(memory: &Arc<MemoryStore>) -> String {
    let tenant = tenant(Arc::<MemoryStore>::clone(memory));
    let page = tenant.entries(THREAD, 0, 500, None).await.unwrap();
    let bodies = page.entries.into_iter().map(|entry| entry.body);
    bodies.collect::<Vec<_>>().join("\n")
}

/// Where the commit of the end fails no event says that the run has ended.
#[tokio::test]
async fn final_commit_that_fails_emits_no_end() {
    let inner = Arc::new(MemoryStore::new());
    let whole = Arc::new(FaultyStore::new(inner, DeathPoint::NEVER));
    let tools = run_until_death(Arc::clone(&whole)).await;
    let memory = Arc::new(MemoryStore::new());
    let death = DeathPoint::Before(whole.commits());
    let shared: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&memory);
    let dying = tenant(Arc::new(FaultyStore::new(shared, death)));
    dying.create(draft()).await.unwrap();
    run(&dying, &tools, "first").await.unwrap();
    assert!(decide(&dying).await);
    let (sink, mut events) = EventSink::channel();
    let driver = scripted_driver(&dying, SCRIPT, &tools, "second");
    let ended = driver
        .run(THREAD, None, &sink, &StopReceiver::never())
        .await;
    assert!(ended.is_err(), "{ended:?}");
    drop(sink);
    let mut seen = 0;
    while let Some(event) = events.recv().await {
        assert!(!matches!(event, RunEvent::Ended(_)), "{event:?}");
        seen += 1;
    }
    assert!(seen > 0, "the run had begun");
    let left = tenant(memory).get(THREAD).await.unwrap();
    assert_eq!(left.status, "running", "nobody has closed it");
}
