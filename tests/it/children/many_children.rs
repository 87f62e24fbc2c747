//! Many children side by side: commits of children with reserves of their own do not conflict, and
//! conflicts on a shared account fail no run.

use super::scripted_tree::{
    ReplyFunction, ScriptedTree, call_blocks, scripted_tree_over, text_blocks,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threadkeep::driver::{EventSink, RunEvent, StopReceiver};
use threadkeep::models::ReplyBlock;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::storage::{
    CommitOp, CommitOutcome, RecordExpectation, StorageBackend, StorageError,
};

/// Children that one reply spawns.
const AT_ONCE: usize = 16;
/// A failed run would be resumed only when its lease expires, after this time.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Number of commits, and how many of them conflicted.
type CommitCounts = (u64, u64);

/// A store that counts commits and conflicts by the kind of commit.
struct ConflictCounter {
    inner: Arc<dyn StorageBackend>,
    /// Serializes commits, each as slow as this.
    disk: Option<(Mutex<()>, Duration)>,
    /// Makes every further commit conflict.
    always: AtomicBool,
    met: Mutex<BTreeMap<&'static str, CommitCounts>>,
}

impl ConflictCounter {
    fn over(inner: Arc<dyn StorageBackend>) -> Arc<Self> {
        Self::slow(inner, Duration::ZERO)
    }

    fn slow(inner: Arc<dyn StorageBackend>, commit: Duration) -> Arc<Self> {
        Arc::new(Self {
            inner,
            disk: (!commit.is_zero()).then(|| (Mutex::default(), commit)),
            always: AtomicBool::new(false),
            met: Mutex::default(),
        })
    }

    fn write(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let Some((disk, pause)) = &self.disk else {
            return self.inner.commit(ops, closing);
        };
        let turn = disk.lock().unwrap();
        let outcome = self.inner.commit(ops, closing)?;
        if outcome == CommitOutcome::Committed {
            std::thread::sleep(*pause);
        }
        drop(turn);
        Ok(outcome)
    }

    fn counts_of(&self, kind: &str) -> CommitCounts {
        self.met
            .lock()
            .unwrap()
            .get(kind)
            .copied()
            .unwrap_or_default()
    }

    fn print(&self, what: &str) {
        for (kind, (commits, conflicts)) in &*self.met.lock().unwrap() {
            println!("{what}: {kind}: {commits} commits, {conflicts} of them conflicts");
        }
    }
}

/// The kind of a commit, by the heads that it writes: `spawn` makes threads, `attempt` admits a
/// call and holds its money, `end` ends a child.
fn commit_kind(ops: &[CommitOp]) -> &'static str {
    let mut kind = "other";
    for op in ops {
        let CommitOp::Put { key, expect, value } = op else {
            continue;
        };
        match key.collection.as_str() {
            "thread" if *expect == RecordExpectation::Absent => return "spawn",
            "head" => {
                let head: Value = serde_json::from_str(value).unwrap();
                if head["status"] == "completed" {
                    kind = "end";
                } else if head["step"]["kind"] == "call-llm" && kind != "end" {
                    kind = "attempt";
                }
            }
            _ => {}
        }
    }
    kind
}

impl StorageBackend for ConflictCounter {
    threadkeep_tests::delegate_calls!(inner: get, scan, read_log);

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let outcome = match self.always.load(Ordering::SeqCst) {
            true => CommitOutcome::Conflict,
            false => self.write(ops, closing)?,
        };
        let mut met = self.met.lock().unwrap();
        let (commits, conflicts) = met.entry(commit_kind(ops)).or_default();
        *commits += 1;
        *conflicts += u64::from(matches!(outcome, CommitOutcome::Conflict));
        Ok(outcome)
    }
}

/// The top spawns the children, sixteen with a reply, waits for the newest and ends; each child
/// asks its model twice and ends.
fn crowd_script(children: usize, arguments: Value, turns: usize) -> Box<ReplyFunction> {
    let replies = children / AT_ONCE;
    Box::new(
        move |who: &str, before: usize, last: &str| -> Vec<ReplyBlock> {
            if who == "leaf" {
                return match last {
                    first if first.contains("Execute the directive") => {
                        call_blocks(&[("list_threads", json!({}))])
                    }
                    second if turns > 2 && second.contains("more") => {
                        call_blocks(&[("thread_status", json!({"thread": "none"}))])
                    }
                    _ => text_blocks("leaf done"),
                };
            }
            let mut calls = vec![("spawn_thread", arguments.clone()); AT_ONCE];
            if before + 1 == replies {
                calls.push(("wait_threads", json!({})));
            }
            match before < replies {
                true => call_blocks(&calls),
                false => text_blocks("all done"),
            }
        },
    )
}

/// Performs the tree; checks that every child ran once from its beginning to its end and that all
/// completed.
async fn perform(grove: &ScriptedTree, children: usize) -> String {
    let top = grove.create_top().await;
    let (sink, mut events) = EventSink::channel();
    let stop = StopReceiver::never();
    let run = grove.driver.run(&top, None, &sink, &stop);
    let ended = tokio::time::timeout(WAIT_TIME_MAX, run).await;
    let ended = ended.expect("no run hangs").unwrap();
    assert_eq!(ended.status, "completed", "{ended:?}");
    drop(sink);
    let (mut begun, mut completed) = (0, 0);
    while let Some(event) = events.recv().await {
        if let RunEvent::Child { event, .. } = event {
            match *event {
                RunEvent::Started { .. } => begun += 1,
                RunEvent::Ended(ended) => {
                    assert_eq!(ended.status, "completed", "{ended:?}");
                    completed += 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!((begun, completed), (children, children));
    let tree = grove.load_branches(&top).await;
    assert_eq!(tree.len(), children + 1);
    for branch in &tree {
        assert_eq!(branch.status, "completed", "{branch:?}");
    }
    let account = grove.driver.tenant().account(&top).await.unwrap();
    assert_eq!((account.held, account.reserved), (0, 0));
    grove.assert_adds_up(&top).await;
    top
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_of_children_with_their_own_reserve_do_not_meet() {
    let arguments = json!({"directive": "leaf", "limits": {"spend": "0.02"}});
    let store = ConflictCounter::over(Arc::new(MemoryStore::new()));
    let act = crowd_script(AT_ONCE, arguments, 3);
    let pause = Duration::from_millis(100);
    let grove = scripted_tree_over(Arc::<ConflictCounter>::clone(&store), "1", pause, act);
    let top = perform(&grove, AT_ONCE).await;
    store.print("16 children with their own reserve");
    let own = |branch: &&threadkeep::wit::ledger::Branch| branch.account.is_some();
    assert_eq!(
        grove.load_branches(&top).await.iter().filter(own).count(),
        AT_ONCE + 1
    );
    let most = grove.actor.most.load(Ordering::SeqCst);
    assert!(most > AT_ONCE / 2, "only {most} ask at once");
    let (attempts, conflicts) = store.counts_of("attempt");
    assert!(attempts >= 3 * AT_ONCE as u64, "{attempts}");
    assert_eq!(conflicts, 0, "attempts met");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_children_on_one_account_meet_and_none_is_hurt() {
    let temporary = tempfile::tempdir().unwrap();
    let path = cap_std::fs::Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority());
    let sqlite = SqliteStore::open(&path.unwrap(), "registry.db", SqliteOptions::local()).unwrap();
    let store = ConflictCounter::over(Arc::new(sqlite));
    let act = crowd_script(4 * AT_ONCE, json!({"directive": "leaf"}), 2);
    let pause = Duration::from_secs(1);
    let grove = scripted_tree_over(Arc::<ConflictCounter>::clone(&store), "5", pause, act);
    perform(&grove, 4 * AT_ONCE).await;
    store.print("64 children on one account, a model of one second");
    let most = grove.actor.most.load(Ordering::SeqCst);
    println!("64 children on one account: {most} asked at once");
    assert!(most > 2 * AT_ONCE, "only {most} ask at once");
}

/// Where a commit takes longer than a model call, all children are always about to commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_ask_without_a_pause_on_a_slow_disk_are_not_hurt() {
    let store = ConflictCounter::slow(Arc::new(MemoryStore::new()), Duration::from_millis(10));
    let act = crowd_script(4 * AT_ONCE, json!({"directive": "leaf"}), 3);
    let pause = Duration::from_millis(1);
    let grove = scripted_tree_over(Arc::<ConflictCounter>::clone(&store), "5", pause, act);
    perform(&grove, 4 * AT_ONCE).await;
    store.print("64 children on one account, a slow disk");
}

#[tokio::test]
async fn writers_that_meet_for_ever_are_an_error_in_the_end() {
    let store = ConflictCounter::over(Arc::new(MemoryStore::new()));
    let act = crowd_script(0, json!({}), 1);
    let grove = scripted_tree_over(
        Arc::<ConflictCounter>::clone(&store),
        "5",
        WAIT_TIME_MAX,
        act,
    );
    let top = grove.create_top().await;
    store.always.store(true, Ordering::SeqCst);
    let title = Some("another".to_owned());
    let error = grove.driver.tenant().set_title(&top, title).await;
    let error = error.unwrap_err();
    assert!(error.retry_unchanged());
    assert!(error.to_string().contains("other writers"), "{error}");
    let (_, conflicts) = store.counts_of("other");
    // Three attempts within each call, and nine calls: the first and eight repeats.
    assert_eq!(conflicts, 3 * 9);
}
