//! Death of the store at every commit of a run whose tool changes the state, returns a large result
//! and an image, and needs a person's approval: the tool runs at most once, the state is that of
//! the entries, and nothing that was acknowledged is lost.

use crate::component::fixture::tenant;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use threadkeep::blobs::list_unreferenced_blobs;
use threadkeep::driver::{Driver, EventSink, StopReceiver};
use threadkeep::error::CallError;
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::models::{BoxFuture, OneProvider};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::tools::{RESULT_BYTES_MAX, ToolEntry, ToolResult, ToolSet};
use threadkeep::wit::runner::SignalKind;
use threadkeep::wit::{history, registry};
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};

const THREAD: &str = "work-1-abcdef";

const SCRIPT: &str = r#"[
  {"text": "one", "calls": [{"name": "write", "arguments": {}}, {"name": "ask",
      "arguments": {}}]},
  {"text": "done"}
]"#;

/// A tool that changes the state and returns more than a result may have, and counts its runs.
#[derive(Default)]
struct ChangingTools {
    runs: [AtomicU64; 2],
}

impl ToolSet for ChangingTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        let time = Duration::from_secs(60);
        vec![ToolEntry::new("write", "", r#"{"type": "object"}"#, time)]
    }

    fn call<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        let asks = name == "ask";
        self.runs[usize::from(asks)].fetch_add(1, Ordering::SeqCst);
        let page = if asks { "a" } else { "w" }.repeat(RESULT_BYTES_MAX + 1);
        let step = json!({"op": "add", "path": format!("/{name}"), "value": page.len()});
        let add = json!({"scope": "thread", "op": "add", "path": "/results", "value": 1});
        let mut result = ToolResult::ok(page);
        result.patches = json!([{"scope": "thread", "patch": [step]}]).to_string();
        result.operations = json!([add]).to_string();
        Box::pin(async move { result })
    }
}

/// Acknowledgements that a process got before it died, and its tools.
#[derive(Default)]
struct AcknowledgedWork {
    tools: Arc<ChangingTools>,
    appended: bool,
    approved: Vec<String>,
}

async fn create(tenant: &Tenant) -> Result<(), CallError> {
    let draft = registry::Draft {
        id: Some(THREAD.to_owned()),
        ..threadkeep_tests::fixture::draft(Some("work"))
    };
    tenant.create(draft).await.map(|_| ())
}

/// Adds to a number of the state, once however often it is called.
async fn append(tenant: &Tenant) -> Result<(), CallError> {
    let add = json!({"scope": "thread", "op": "add", "path": "/sum", "value": 1});
    let change = history::ChangeSet {
        operations: vec![add.to_string()],
        // So that the process after a death can send it again.
        request: Some("sum".to_owned()),
        ..history::ChangeSet::of_events(Vec::new())
    };
    let expected = history::Expected::Exact(0);
    let written = tenant.append_change(THREAD, None, expected, change).await;
    written.map(|_| ())
}

async fn run(tenant: &Tenant, tools: &Arc<ChangingTools>, nonce: &str) -> Option<String> {
    let script = Arc::new(ScriptedProvider::parse(SCRIPT).unwrap());
    let tools = Arc::<ChangingTools>::clone(tools);
    let driver = Driver::new(
        tenant.clone(),
        Arc::new(OneProvider::new(script)),
        tools,
        nonce,
    );
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    driver
        .run(THREAD, None, &sink, &stop)
        .await
        .ok()
        .map(|ended| ended.status)
}

/// Ids of the calls that wait for a decision.
async fn waiting(tenant: &Tenant) -> Vec<String> {
    let Ok(thread) = tenant.get(THREAD).await else {
        return Vec::new();
    };
    let more: Value = serde_json::from_str(&thread.more).unwrap();
    let calls = more["waits_for"]["calls"].as_array().into_iter().flatten();
    calls
        .map(|call| call["call"].as_str().unwrap().to_owned())
        .collect()
}

/// Approves the calls that wait; returns those that were approved.
async fn approve(tenant: &Tenant) -> Result<Vec<String>, CallError> {
    let calls = waiting(tenant).await;
    for call in &calls {
        let what = SignalKind::Decision(json!({"call": call, "approve": true}).to_string());
        tenant
            .signal(THREAD, &format!("approve {call}"), what)
            .await?;
    }
    Ok(calls)
}

async fn run_until_death(store: Arc<FaultyStore>) -> AcknowledgedWork {
    let dying = tenant(store);
    let mut told = AcknowledgedWork::default();
    if create(&dying).await.is_err() {
        return told;
    }
    told.appended = append(&dying).await.is_ok();
    if told.appended && run(&dying, &told.tools, "first").await.is_some() {
        told.approved = approve(&dying).await.unwrap_or_default();
        run(&dying, &told.tools, "second").await;
    }
    told
}

/// Carries the thread to its end in another process.
async fn carry_on(second: &Tenant, told: &AcknowledgedWork) {
    let created = create(second).await;
    assert!(created.is_ok() || second.get(THREAD).await.is_ok());
    let held = second.recover(Vec::new(), None).await.unwrap().held;
    let dead: Vec<String> = held.into_iter().map(|lease| lease.holder).collect();
    second.recover(dead, None).await.unwrap();
    if told.appended {
        assert_eq!(state(second).await["sum"], 1, "it was acknowledged");
    }
    append(second).await.unwrap();
    for nonce in ["third", "fourth", "fifth"] {
        approve(second).await.unwrap();
        if second.get(THREAD).await.unwrap().status != "completed" {
            run(second, &told.tools, nonce).await;
        }
    }
    assert_eq!(second.get(THREAD).await.unwrap().status, "completed");
}

/// The scope of the thread in its state.
async fn state(tenant: &Tenant) -> Value {
    let loaded = tenant.load(THREAD, None).await.unwrap();
    let state: Value = serde_json::from_str(&loaded.state).unwrap();
    state["thread"].clone()
}

/// Checks that the tools ran at most once, that the state has what their results say, and that each
/// acknowledged decision is in the history.
async fn check_end(second: &Tenant, told: &AcknowledgedWork) {
    for runs in &told.tools.runs {
        let runs = runs.load(Ordering::SeqCst);
        assert!(runs <= 1, "a call that is not idempotent ran {runs} times");
    }
    let page = second.events(THREAD, 0, 500, None).await.unwrap();
    let events = page.events.iter();
    let bodies: Vec<Value> = events
        .map(|event| serde_json::from_str(&event.body).unwrap())
        .collect();
    let of_kind = |kind: &'static str| bodies.iter().filter(move |event| event["type"] == kind);
    for call in &told.approved {
        let decided = of_kind("decision")
            .filter(|event| *call == format!("call_{}_{}", event["version"], event["index"]));
        assert_eq!(decided.count(), 1, "{call} was approved");
    }
    let done: Vec<&Value> = of_kind("tool_result")
        .filter(|result| result["failed"] == false)
        .collect();
    let mut expected = json!({"sum": 1});
    for result in &done {
        let name = result["name"].as_str().unwrap();
        expected[name] = json!(RESULT_BYTES_MAX + 1);
        expected["results"] = json!(done.len());
        let blob = result["blocks"][0]["blob"].as_str().unwrap();
        let whole = second.read_blob(THREAD, blob).await.unwrap();
        assert_eq!(whole.len(), RESULT_BYTES_MAX + 1, "the blob is whole");
    }
    assert_eq!(state(second).await, expected);
}

#[tokio::test]
async fn death_at_every_commit_keeps_state_decisions_and_blobs() {
    let orphans = AtomicU64::new(0);
    let work = async |_: &_, store| run_until_death(store).await;
    let carry_on = async |memory: &Arc<MemoryStore>, told: AcknowledgedWork, death| {
        // A blob whose result was never recorded stays, is no finding, and is named.
        let left = list_unreferenced_blobs(&**memory).unwrap();
        orphans.fetch_add(left.len() as u64, Ordering::SeqCst);
        let second = tenant(Arc::<MemoryStore>::clone(memory));
        carry_on(&second, &told).await;
        check_end(&second, &told).await;
        if death == DeathPoint::NEVER {
            let runs = told.tools.runs.each_ref().map(|n| n.load(Ordering::SeqCst));
            assert_eq!((runs, left.len()), ([1, 1], 0), "nothing stopped it");
        }
        assert!(
            left.iter()
                .all(|blob| blob.chain == THREAD && blob.size > 0)
        );
    };
    let commits = die_at_every_commit(work, carry_on).await;
    assert!(commits > 10, "{commits}");
    assert!(
        orphans.into_inner() > 0,
        "no death came between a blob and its result"
    );
}
