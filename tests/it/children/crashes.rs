//! Death of the process at every commit of a tree: of a spawn, a wait, a child's end, a cancel and
//! its propagation. Another process recovers the tree and brings it to its end.

use crate::runner::fixture::{RunnerFixture, calls, says};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::StorageError;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{HolderProof, Signal, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadDraft, ThreadStatus};
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::FaultyStore;
use threadkeep_tests::fixture::MapLibrary;

const TOP: &str = "boss-1-abcdef";

/// Event in the life of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeEvent {
    /// No event: every thread waits for its children.
    Quiet,
    /// The top kills its first child.
    Killed,
    /// A person cancels the top when the whole tree is there.
    Cancelled,
}

/// One process that drives the tree by hand.
struct TreeProcess {
    world: RunnerFixture,
    story: TreeEvent,
    /// Number of runs of the tool that is not idempotent, by thread.
    writes: BTreeMap<String, u32>,
}

/// Returns true for an error that ends the process; a commit with an unknown outcome does not.
fn ends_process(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Storage(StorageError::OutcomeUnknown(..)) => false,
        ErrorKind::Storage(_) => true,
        _ => false,
    }
}

impl TreeProcess {
    fn new(store: Arc<dyn StorageBackend>, story: TreeEvent, later: u64) -> Self {
        let world = RunnerFixture::over(store, MapLibrary::small());
        world.advance(later * 1_000);
        Self {
            world,
            story,
            writes: BTreeMap::new(),
        }
    }

    fn create(&self) -> Result<(), Error> {
        let draft = ThreadDraft {
            id: Some(TOP.to_owned()),
            directive: Some("boss".to_owned()),
            ..ThreadDraft::default()
        };
        self.world.service.create(&draft).map(|_| ())
    }

    fn load_all(&self) -> Result<Vec<LoadedThread>, Error> {
        let page = self.world.service.tree_page(TOP, None)?;
        Ok(page
            .branches
            .into_iter()
            .map(|(loaded, _)| loaded)
            .collect())
    }

    /// The reply of the model of a thread.
    fn model_reply(&self, loaded: &LoadedThread) -> Result<StepOutcome, Error> {
        let depth = loaded.chain.value.depth;
        let wait = ("wait_threads", json!({}).to_string());
        let wanted = match (depth, loaded.chain.value.children) {
            (2, _) if loaded.head.value.counters.turns > 0 => return Ok(says("done")),
            (2, _) => vec![("write", json!({}).to_string())],
            (depth, 0) => {
                let spawn = match depth {
                    0 => json!({"directive": "boss", "limits": {"spend": "0.03"}}),
                    _ => json!({"directive": "work"}),
                };
                let spawn = ("spawn_thread", spawn.to_string());
                match self.story == TreeEvent::Killed && depth == 0 {
                    // The top does not wait before it has killed a child.
                    true => vec![spawn.clone(), spawn],
                    false => vec![spawn.clone(), spawn, wait],
                }
            }
            (0, _) if self.story == TreeEvent::Killed => {
                let all = self.load_all()?;
                let child = all.iter().find(|child| child.chain.value.number == 1);
                let child = child.expect("it was spawned");
                let head = &child.head.value;
                match head.status.is_terminal() || head.intent.is_some() {
                    true => return Ok(says("done")),
                    false => {
                        let id = &child.thread.value.id;
                        vec![("kill_thread", json!({"thread": id}).to_string()), wait]
                    }
                }
            }
            _ => return Ok(says("done")),
        };
        let wanted: Vec<(&str, &str)> = wanted
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        Ok(calls(&wanted))
    }

    fn answer(&mut self, loaded: &LoadedThread) -> Result<(), Error> {
        let thread = loaded.thread.value.id.clone();
        let outcome = match self.world.pending(&thread) {
            Some(StepKind::CallLlm) => self.model_reply(loaded)?,
            Some(StepKind::CallTools) => {
                *self.writes.entry(thread.clone()).or_default() += 1;
                self.world.outcomes(&thread)
            }
            other => panic!("{thread} has {other:?} to do"),
        };
        self.world.submit(&thread, outcome).map(|_| ())
    }

    fn begin(&mut self, loaded: &LoadedThread) -> Result<(), Error> {
        let thread = &loaded.thread.value.id;
        self.world.count("begun");
        if loaded.head.value.status != ThreadStatus::Waiting {
            return self.world.start(thread, None).map(|_| ());
        }
        let holder = format!("claimer/{}", self.world.counts["begun"]);
        let handed = self
            .world
            .service
            .claim(thread, &holder, HolderProof::None)?;
        if handed.step.kind.is_some() {
            self.world.hold(thread, Ok(handed))?;
        }
        Ok(())
    }

    fn sweep(&self, thread: &str) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            cursor = self.world.service.sweep_page(thread, cursor)?.cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Handles every due thread once; returns true if any had something to do.
    fn handle_due(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        for loaded in self.load_all()? {
            let held = self.world.held.get(&loaded.thread.value.id);
            let token = held.map(|held| held.token);
            let head = &loaded.head.value;
            if head.status == ThreadStatus::Running && token == Some(head.token) {
                self.answer(&loaded)?;
                moved = true;
            }
        }
        if self.story == TreeEvent::Cancelled && self.load_all()?.len() == 7 {
            let top = &self.world.service.load(TOP)?.head.value;
            if !top.status.is_terminal() && top.intent.is_none() {
                let service = &self.world.service;
                service.signal(TOP, "cancel", &Signal::Cancel)?;
                moved = true;
            }
        }
        let due = self.world.service.ready(100, None, Some(TOP))?.threads;
        for due in due {
            let head = &due.loaded.head.value;
            match head.sweep.is_some() || head.intent.is_some() {
                true => self.sweep(&due.loaded.thread.value.id)?,
                false => self.begin(&due.loaded)?,
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Drives the tree until there is nothing to do; returns false if the process has died.
    fn drive_until_idle(&mut self) -> bool {
        for _ in 0..200 {
            match self.handle_due() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) if ends_process(&error) => return false,
                // The record changed after it was read, or the outcome is unknown: the loop reads
                // it again.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Storage(_) | ErrorKind::Core(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("there is always something to do");
    }

    /// Closes the runs of another process and carries the tree on.
    fn carry_on(&mut self) {
        let service = &self.world.service;
        let held = service.recover(&[], None).unwrap().held;
        let dead: Vec<String> = held
            .into_iter()
            .filter_map(|one| one.head.value.holder.clone())
            .collect();
        service.recover(&dead, None).unwrap();
        self.world.audit();
        for loaded in self.load_all().unwrap() {
            let head = &loaded.head.value;
            assert!(head.hold.is_none(), "a hold without an owner");
            if head.status == ThreadStatus::Suspended {
                assert_eq!(head.cause.as_ref().unwrap().code, "recovered");
                self.world.count("resumed");
                self.world.start(&loaded.thread.value.id, None).unwrap();
            }
        }
        assert!(self.drive_until_idle(), "the store lives");
    }
}

/// Drives the tree until the store dies; returns the number of runs of the tool by thread.
fn drive_until_death(store: Arc<FaultyStore>, story: TreeEvent) -> BTreeMap<String, u32> {
    let mut process = TreeProcess::new(store, story, 0);
    if process.create().is_ok() {
        process.drive_until_idle();
    }
    process.writes
}

/// Carries the tree on in another process, and checks how it ended.
fn check_end(memory: &Arc<MemoryStore>, story: TreeEvent, writes: BTreeMap<String, u32>) {
    let memory = Arc::<MemoryStore>::clone(memory);
    let mut second = TreeProcess::new(memory, story, 60);
    second.writes = writes;
    if second.world.service.load(TOP).is_err() {
        second.create().unwrap();
    }
    second.carry_on();
    let all = second.load_all().unwrap();
    for loaded in &all {
        let (id, status) = (&loaded.thread.value.id, loaded.head.value.status);
        assert!(status.is_terminal(), "{id} is {status}");
        let children = loaded.chain.value.children;
        assert!(children <= 2, "{id} has {children} children");
    }
    let ended = |status| {
        all.iter()
            .filter(|one| one.head.value.status == status)
            .count()
    };
    let killed = ended(ThreadStatus::Killed);
    match story {
        TreeEvent::Quiet => assert_eq!((all.len(), ended(ThreadStatus::Completed)), (7, 7)),
        TreeEvent::Killed => {
            assert!(all.len() >= 5 && killed >= 1, "{}", all.len());
            assert_eq!(killed + ended(ThreadStatus::Completed), all.len());
        }
        TreeEvent::Cancelled => assert_eq!(all[0].head.value.status, ThreadStatus::Cancelled),
    }
    let twice = second.writes.values().any(|n| *n > 1);
    assert!(!twice, "a call that is not idempotent ran twice");
}

#[tokio::test]
async fn death_at_every_commit_of_a_tree_loses_nothing_and_repeats_nothing() {
    for story in [TreeEvent::Quiet, TreeEvent::Killed, TreeEvent::Cancelled] {
        println!("{story:?}");
        let work = async |_: &_, store| drive_until_death(store, story);
        let carry_on = async |memory: &_, writes, _| check_end(memory, story, writes);
        let commits = die_at_every_commit(work, carry_on).await;
        assert!(commits > 15, "{commits}");
    }
}
