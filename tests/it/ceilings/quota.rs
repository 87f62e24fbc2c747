//! A quota that is reached in the middle of a run. The bill and the end of the run are still
//! recorded, by closing commits, which alone may use the margin. Once there is room the run goes on
//! where it stopped.

use super::raise;
use crate::component::project::{describe_draft, open, project_dir};
use cap_std::fs::Dir;
use std::collections::BTreeMap;
use std::sync::Arc;
use threadkeep::driver::{DriveError, EndedRun, EventSink, StopReceiver};
use threadkeep::error::CallError;
use threadkeep::project::{OpenProject, SQLITE_STORE};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::storage::{StorageBackend, StorageQuota};
use threadkeep::wit;
use threadkeep::wit::runner::SignalKind;
use threadkeep_tests::auditor::audit;

const MODELS: &str = r#"
providers: {local: {wire: scripted, file: script.json}}
models:
  tiny: {provider: local, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
tiers: {default: tiny}
"#;

/// A call, a failure that is retried, then the end.
const SCRIPT: &str = r#"[
  {"text": "Let me look.", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
   "usage": {"input": 100, "output": 10}},
  {"fail": {"kind": "transient", "code": "test", "message": "once", "sent": false}},
  {"text": "It holds a note.", "usage": {"input": 150, "output": 20}}
]"#;

/// Nano-USD spent after each number of turns, at the fixture's prices.
const SPENT_NANOS: [u64; 3] = [0, 120_000, 310_000];

/// Bytes that closing commits may fill above a quota: several entries of this run.
const MARGIN_BYTES: u64 = 64 << 10;

/// Step in bytes by which the quota grows from run to run: less than any commit of the run.
const STEP_BYTES: u64 = 150;

/// A store that is opened with a quota, and again without one.
trait QuotaBackend {
    fn with_quota(&mut self, dir: &Dir, limit_bytes: Option<u64>) -> Arc<dyn StorageBackend>;
}

struct MemoryBackend(Arc<MemoryStore>);

impl QuotaBackend for MemoryBackend {
    fn with_quota(&mut self, _: &Dir, limit_bytes: Option<u64>) -> Arc<dyn StorageBackend> {
        self.0.set_quota(limit_bytes.map(quota));
        Arc::<MemoryStore>::clone(&self.0)
    }
}

struct SqliteBackend;

impl QuotaBackend for SqliteBackend {
    fn with_quota(&mut self, dir: &Dir, limit_bytes: Option<u64>) -> Arc<dyn StorageBackend> {
        let options = SqliteOptions {
            quota_bytes: limit_bytes,
            closing_margin_bytes: MARGIN_BYTES,
            ..SqliteOptions::local()
        };
        let threads = dir.open_dir(".ai/threads").unwrap();
        Arc::new(SqliteStore::open(&threads, SQLITE_STORE, options).unwrap())
    }
}

fn quota(limit_bytes: u64) -> StorageQuota {
    StorageQuota {
        limit_bytes,
        closing_margin_bytes: MARGIN_BYTES,
    }
}

fn draft_with_id(id: &str) -> wit::registry::Draft {
    wit::registry::Draft {
        id: Some(id.to_owned()),
        ..describe_draft()
    }
}

async fn drive(project: &OpenProject, thread: &str) -> Result<EndedRun, DriveError> {
    project
        .driver()
        .run(thread, None, &EventSink::none(), &StopReceiver::never())
        .await
}

fn is_full<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::Refused(wit::Error::Full(_))))
}

/// Performs a run under a quota, checks the result, and carries it to its end without the quota.
/// Returns the place that the run reached under the quota.
async fn run_under_quota(limit_bytes: u64, backend: &mut dyn QuotaBackend) -> String {
    let (_kept, dir) = project_dir(MODELS);
    dir.write(".ai/script.json", SCRIPT).unwrap();
    dir.create_dir_all(".ai/threads").unwrap();
    let store = backend.with_quota(&dir, Some(limit_bytes));
    let project = open(dir.try_clone().unwrap(), Some(Arc::clone(&store)), &[]);
    let created = project.tenant().create(draft_with_id("one")).await;
    if created.is_err() {
        assert!(is_full(&created), "{created:?}");
        return "create refused".to_owned();
    }
    let came_to = run_until_stopped(&project, limit_bytes).await;
    assert!(audit(&*store).is_empty(), "{:#?}", audit(&*store));
    drop((project, store));

    let store = backend.with_quota(&dir, None);
    let project = open(dir, Some(Arc::clone(&store)), &[]);
    if came_to != "completed" {
        let ended = drive(&project, "one").await.unwrap();
        assert_eq!(ended.status, "completed", "{came_to}: {ended:?}");
        let costs = (ended.costs.turns, ended.costs.spend_nanos);
        assert_eq!(costs, (2, SPENT_NANOS[2]), "{came_to}");
    }
    assert!(audit(&*store).is_empty(), "{:#?}", audit(&*store));
    came_to
}

/// Runs the thread in a store with a quota and returns the place where it stopped.
async fn run_until_stopped(project: &OpenProject, limit_bytes: u64) -> String {
    let driven = drive(project, "one").await;
    let thread = project.tenant().get("one").await.unwrap();
    let answered = usize::try_from(thread.cost.turns).unwrap();
    assert_eq!(thread.cost.spend, SPENT_NANOS[answered], "{limit_bytes}");
    assert!(thread.run.lease.is_none(), "{limit_bytes}: {thread:?}");
    match driven {
        Err(DriveError::Call(error)) => {
            assert!(is_full::<()>(&Err(error)), "{limit_bytes}");
            assert_eq!((thread.status.as_str(), thread.version), ("created", 0));
            "start refused".to_owned()
        }
        Err(error) => panic!("{limit_bytes}: {error}"),
        Ok(ended) if ended.status == "completed" => ended.status,
        Ok(ended) => {
            let cause = ended.cause.expect("it says why");
            let named = (cause.reason.as_str(), cause.code.as_str());
            assert_eq!(named, ("limit", "store_full"), "{cause:?}");
            assert!(cause.message.contains("raise the quota"), "{cause:?}");
            refuses_growth(project, limit_bytes).await;
            let events = project
                .tenant()
                .events("one", 0, 100, None)
                .await
                .unwrap()
                .events;
            let last = events.iter().rfind(|event| event.kind != "suspended");
            format!("suspended after {}", last.map_or("", |event| &event.kind))
        }
    }
}

/// Checks that a run which stopped for want of room left less of it than a new thread needs.
async fn refuses_growth(project: &OpenProject, limit_bytes: u64) {
    let message = "x".repeat(2_000);
    let signalled = project.tenant().signal(
        "one",
        "more",
        SignalKind::Message(format!(r#"{{"role":"user","content":"{message}"}}"#)),
    );
    assert!(is_full(&signalled.await), "{limit_bytes}");
    let another = project.tenant().create(draft_with_id("two")).await;
    assert!(is_full(&another), "{limit_bytes}: {another:?}");
}

/// Every place of the run at which a quota can be reached.
const PLACES: [&str; 6] = [
    "completed",
    "create refused",
    "start refused",
    "suspended after error",
    "suspended after result",
    "suspended after tool_result",
];

async fn check_all_quotas(step_bytes: u64, mut backend: impl FnMut() -> Box<dyn QuotaBackend>) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut limit_bytes = 0;
    while !seen.contains_key("completed") {
        let came_to = run_under_quota(limit_bytes, &mut *backend()).await;
        *seen.entry(came_to).or_default() += 1;
        limit_bytes += step_bytes;
        assert!(limit_bytes < 1 << 20, "{seen:?}");
    }
    println!("quota in steps of {step_bytes} bytes: {seen:?}");
    let places: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(places, PLACES, "{seen:?}");
}

#[tokio::test]
async fn a_quota_in_the_middle_of_a_run_leaves_a_settled_thread_in_memory() {
    check_all_quotas(STEP_BYTES, || {
        Box::new(MemoryBackend(Arc::new(MemoryStore::new())))
    })
    .await;
}

/// Both stores see the same commits, so fewer places are tried here.
#[tokio::test]
async fn a_quota_in_the_middle_of_a_run_leaves_a_settled_thread_in_sqlite() {
    check_all_quotas(2 * STEP_BYTES, || Box::new(SqliteBackend)).await;
}

/// In a store whose quota is already exceeded only closing commits may write, and each of them
/// once.
#[tokio::test]
async fn only_closing_commits_may_use_the_margin() {
    let (_kept, dir) = project_dir(MODELS);
    dir.write(".ai/script.json", SCRIPT).unwrap();
    let store = Arc::new(MemoryStore::new());
    let shared: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&store);
    let project = open(dir, Some(Arc::clone(&shared)), &[]);
    let tenant = project.tenant();
    let poor = wit::registry::Draft {
        limits: wit::Limits {
            spend: Some(0),
            ..describe_draft().limits
        },
        ..draft_with_id("poor")
    };
    tenant.create(poor).await.unwrap();
    for id in ["new", "held", "lost", "fenced"] {
        tenant.create(draft_with_id(id)).await.unwrap();
    }
    for id in ["held", "lost", "fenced"] {
        tenant.start(id, None, "h/1", id, None).await.unwrap();
    }
    store.set_quota(Some(quota(1)));

    // A start that comes no further than a suspension for want of money is growth too.
    assert!(is_full(&tenant.start("poor", None, "h/2", "a", None).await));
    assert!(is_full(&tenant.start("new", None, "h/2", "b", None).await));
    assert!(is_full(&tenant.create(draft_with_id("more")).await));
    let titled = tenant.set_title("new", Some("t".repeat(100))).await;
    assert!(is_full(&titled), "{titled:?}");
    let message = || SignalKind::Message(r#"{"role":"user","content":"more"}"#.to_owned());
    for id in ["new", "held"] {
        assert!(is_full(&tenant.signal(id, "m", message()).await), "{id}");
    }
    let raised = raise(wit::Limits {
        turns: Some(50),
        ..describe_draft().limits
    });
    assert!(is_full(&tenant.signal("held", "r", raised).await));
    let partial = tenant.progress("held", 1, Some("x".repeat(4_000))).await;
    assert_eq!(partial.unwrap().verdict, "go-on", "a partial is given up");

    // Closing commits pass: a cancel that waits (the first one), a kill, a recovery, a claim that
    // cannot go on.
    tenant
        .signal("held", "c1", SignalKind::Cancel)
        .await
        .unwrap();
    assert!(is_full(
        &tenant.signal("held", "c2", SignalKind::Cancel).await
    ));
    tenant.signal("held", "k", SignalKind::Kill).await.unwrap();
    let claimed = tenant
        .claim("fenced", "h/3", wit::runner::Proof::Dead)
        .await;
    let claimed = claimed.unwrap();
    let cause = claimed.thread.cause.expect("it is suspended");
    assert_eq!(
        (claimed.step.kind.as_str(), cause.code.as_str()),
        ("finished", "store_full")
    );
    let recovered = tenant.recover(vec!["h/1".to_owned()], None).await.unwrap();
    assert_eq!(recovered.closed, ["lost"]);
    assert!(audit(&*shared).is_empty(), "{:#?}", audit(&*shared));
}
