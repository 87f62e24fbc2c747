//! Death of the process at every commit of a tree: of a spawn, a wait, a child's end, a cancel and
//! its propagation. Another process recovers the tree and brings it to its end.

use crate::runner::fixture::{RunnerFixture, calls, says};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::StorageError;
use threadkeep_component::service::Error;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{HolderProof, Signal, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadDraft, ThreadStatus};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
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
    match error {
        Error::Storage(StorageError::OutcomeUnknown(..)) => false,
        Error::Storage(_) => true,
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
                Err(Error::Storage(_) | Error::Core(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("there is always something to do");
    }

    /// Closes the runs of another process and carries the tree on.
    fn carry_on(&mut self, how: &str) {
        let service = &self.world.service;
        let held = service.recover(&[], None).unwrap().held;
        let dead: Vec<String> = held
            .into_iter()
            .filter_map(|one| one.head.value.holder)
            .collect();
        service.recover(&dead, None).unwrap();
        self.world.audit();
        for loaded in self.load_all().unwrap() {
            let head = &loaded.head.value;
            assert!(head.hold.is_none(), "{how}: a hold without an owner");
            if head.status == ThreadStatus::Suspended {
                assert_eq!(head.cause.as_ref().unwrap().code, "recovered", "{how}");
                self.world.count("resumed");
                self.world.start(&loaded.thread.value.id, None).unwrap();
            }
        }
        assert!(self.drive_until_idle(), "{how}");
        self.world.audit();
    }
}

/// Runs until the store dies. Returns the number of requested commits, the store that is left, and
/// the number of runs of the tool by thread.
fn run_until_death(
    death: DeathPoint,
    story: TreeEvent,
) -> (u64, Arc<MemoryStore>, BTreeMap<String, u32>) {
    let memory = Arc::new(MemoryStore::new());
    let faulty = Arc::new(FaultyStore::new(Arc::<MemoryStore>::clone(&memory), death));
    let mut process = TreeProcess::new(Arc::<FaultyStore>::clone(&faulty), story, 0);
    if process.create().is_ok() {
        process.drive_until_idle();
    }
    (faulty.commits(), memory, process.writes)
}

fn check(death: DeathPoint, story: TreeEvent) {
    let how = format!("{story:?}, {death:?}");
    let (_, memory, writes) = run_until_death(death, story);
    let findings = audit(&*memory);
    assert!(findings.is_empty(), "{how}: {findings:#?}");
    let mut second = TreeProcess::new(memory, story, 60);
    second.writes = writes;
    if second.world.service.load(TOP).is_err() {
        second.create().unwrap();
    }
    second.carry_on(&how);
    let all = second.load_all().unwrap();
    for loaded in &all {
        let (id, status) = (&loaded.thread.value.id, loaded.head.value.status);
        assert!(status.is_terminal(), "{how}: {id} is {status}");
        let children = loaded.chain.value.children;
        assert!(children <= 2, "{how}: {id} has {children} children");
    }
    let ended = |status| {
        all.iter()
            .filter(|one| one.head.value.status == status)
            .count()
    };
    match story {
        TreeEvent::Quiet => {
            assert_eq!((all.len(), ended(ThreadStatus::Completed)), (7, 7), "{how}")
        }
        TreeEvent::Killed => {
            assert!(
                all.len() >= 5 && ended(ThreadStatus::Killed) >= 1,
                "{how}: {}",
                all.len()
            );
            assert!(
                ended(ThreadStatus::Killed) + ended(ThreadStatus::Completed) == all.len(),
                "{how}"
            );
        }
        TreeEvent::Cancelled => {
            assert_eq!(all[0].head.value.status, ThreadStatus::Cancelled, "{how}")
        }
    }
    let twice = second.writes.values().any(|n| *n > 1);
    assert!(!twice, "{how}: a call that is not idempotent ran twice");
}

#[test]
fn death_at_every_commit_of_a_tree_loses_nothing_and_repeats_nothing() {
    for story in [TreeEvent::Quiet, TreeEvent::Killed, TreeEvent::Cancelled] {
        let (commits, ..) = run_until_death(DeathPoint::Before(u64::MAX), story);
        println!("commits, {story:?}: {commits}");
        assert!(commits > 15, "{commits}");
        for n in 1..=commits {
            for death in [
                DeathPoint::Before(n),
                DeathPoint::After(n),
                DeathPoint::Unknown(n),
                DeathPoint::UnknownLost(n),
            ] {
                check(death, story);
            }
        }
    }
}
