//! A store that holds every kind of thread and money record, as a file in which tests plant
//! violations.

use crate::history::branch_fixture::{PlantedLink, plant_link};
use crate::runner::fixture::{RunnerFixture, calls, raise, reply, says, usage};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use threadkeep::audit::{AuditReport, audit};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ledger::UnresolvedEstimate;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{CallBill, HolderProof, Signal, StepSubmission};
use threadkeep_core::thread::{StepKind, ThreadDraft};
use threadkeep_tests::fixture::MapLibrary;

const FILE: &str = "registry.db";

pub fn open(path: &Path) -> Arc<dyn StorageBackend> {
    let dir = cap_std::fs::Dir::open_ambient_dir(path, cap_std::ambient_authority()).unwrap();
    let options = SqliteOptions {
        durability: CommitDurability::Normal,
        ..SqliteOptions::local()
    };
    Arc::new(SqliteStore::open(&dir, FILE, options).unwrap())
}

/// The file of a closed store; each test that breaks something works on a copy.
pub struct ClosedStore {
    temp: TempDir,
}

impl ClosedStore {
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let world = RunnerFixture::over(open(temp.path()), MapLibrary::small());
        write_everything(world);
        Self { temp }
    }

    /// The same with a second link after the chat `idle`: `second`.
    pub fn with_link() -> Self {
        let kept = Self::new();
        let world = RunnerFixture::over(open(kept.temp.path()), MapLibrary::small());
        let link = PlantedLink {
            tip: "idle",
            id: "second",
            from: 1,
        };
        plant_link(&world, link);
        kept
    }

    /// Runs SQL on a copy of the file from outside, and returns the audit's report of that copy.
    pub fn audit_after(&self, sql: &str) -> AuditReport {
        let (copy, connection) = self.copy();
        connection
            .execute_batch(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(
            sql.is_empty() || connection.total_changes() > 0,
            "nothing was planted: {sql}"
        );
        drop(connection);
        audit(&*open(copy.path())).unwrap()
    }

    /// Reads a copy over a plain connection, as a person does who opens the file.
    pub fn inspect_copy<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        let (_copy, connection) = self.copy();
        look(&connection)
    }

    pub fn copy(&self) -> (TempDir, Connection) {
        let copy = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { self.temp.path().join(name) };
        for name in [FILE.to_owned(), format!("{FILE}-wal")] {
            if path(&name).exists() {
                std::fs::copy(path(&name), copy.path().join(&name)).unwrap();
            }
        }
        let connection = Connection::open(copy.path().join(FILE)).unwrap();
        (copy, connection)
    }
}

/// Creates a thread with this id.
pub fn create(world: &RunnerFixture, id: &str, directive: Option<&str>) -> String {
    let draft = ThreadDraft {
        id: Some(id.to_owned()),
        directive: directive.map(str::to_owned),
        agent: Some("an agent".to_owned()),
        task: Some("t".repeat(200)),
        ..ThreadDraft::default()
    };
    world
        .service
        .create(&draft)
        .unwrap()
        .thread
        .value
        .id
        .clone()
}

/// Performs a run to its end; a thread with tools calls some, a chat only answers.
pub fn run_to_end(world: &mut RunnerFixture, thread: &str) {
    world.start(thread, Some("go on 漢")).unwrap();
    let called = world.submit(thread, calls(&[("read", "{}"), ("write", "{}")]));
    if called.unwrap().step.kind == Some(StepKind::CallTools) {
        let outcomes = world.outcomes(thread);
        world.submit(thread, outcomes).unwrap();
    }
    world.submit(thread, says("done")).unwrap();
}

fn write_everything(mut world: RunnerFixture) {
    for (id, directive) in [
        ("Done", Some("work")),
        ("poor", Some("poor")),
        ("raised", Some("work")),
        ("cancelled", Some("work")),
        ("late", Some("work")),
        ("open", Some("work")),
        ("asking", Some("work")),
        ("fresh", Some("work")),
        ("idle", None),
        ("failed", None),
        ("top", None),
    ] {
        create(&world, id, directive);
    }
    run_to_end(&mut world, "Done");
    run_to_end(&mut world, "idle");
    add_capped_threads(&mut world);
    add_late_correction(&mut world);
    add_external_loops(&mut world);
    add_children(&mut world);
    // Two threads under way: one with open calls and mail, one with a hold.
    world.start("open", None).unwrap();
    world
        .submit(
            "open",
            calls(&[("read", "{}"), ("ask", "{}"), ("write", "{}")]),
        )
        .unwrap();
    let mail = threadkeep_core::history::parse_user(&crate::runner::fixture::user("by the way"));
    let mail = Signal::Message(mail.unwrap());
    world.service.signal("open", "m", &mail).unwrap();
    world.start("asking", None).unwrap();
    let token = world.held["asking"].token;
    world.service.progress("asking", token, "half a").unwrap();
    world.audit();
}

/// Adds caps that are reached and raised, a cancel, and an attempt that failed.
fn add_capped_threads(world: &mut RunnerFixture) {
    world.start("poor", None).unwrap();
    for _ in 0..9 {
        if world.status("poor") == "running" {
            world.submit("poor", calls(&[("raed", "{}")])).unwrap();
        }
    }
    assert_eq!(world.status("poor"), "suspended");
    let caps = ThreadCaps {
        spend: Some(NanoUsd::new(3_000_000_000)),
        ..ThreadCaps::NONE
    };
    world.start("raised", None).unwrap();
    world.service.signal("raised", "r", &raise(caps)).unwrap();
    world.submit("raised", says("done")).unwrap();
    world.start("cancelled", None).unwrap();
    world
        .service
        .signal("cancelled", "c", &Signal::Cancel)
        .unwrap();
    world.submit("cancelled", says("done")).unwrap();
    assert_eq!(world.status("cancelled"), "cancelled");
}

/// Adds an attempt that was charged, and its real usage, reported after the thread was killed.
fn add_late_correction(world: &mut RunnerFixture) {
    let handed = world.start("late", None).unwrap();
    let submission = StepSubmission {
        token: handed.loaded.head.value.token,
        version: handed.step.version,
        outcome: reply(Vec::new(), usage(200, 20)),
        inputs: threadkeep_core::runner::DecisionInputs::default(),
    };
    world.service.signal("late", "k", &Signal::Kill).unwrap();
    let fenced = world
        .service
        .submit("late", &submission, submission.version);
    assert!(fenced.is_err(), "it was killed");
}

/// Adds external loops: one ended by an error with an unsettled call, one under way.
fn add_external_loops(world: &mut RunnerFixture) {
    let deadline = world.service.ports().now().plus_millis(60_000);
    for (thread, ends) in [("failed", true), ("top", false)] {
        let opened = world.service.open(thread, "own/1", deadline).unwrap();
        let token = opened.head.value.token;
        let hold = |name: &str| {
            let asked = UnresolvedEstimate::Amount(NanoUsd::new(5_000));
            let held = world.service.hold(thread, token, name, &asked, deadline);
            held.unwrap().version
        };
        let first = hold("first");
        hold("second");
        world
            .service
            .settle(thread, first, CallBill::Amount(NanoUsd::new(4_000)))
            .unwrap();
        if ends {
            let result = r#"{"code":"gone","message":"on purpose"}"#.to_owned();
            world
                .service
                .close(thread, token, "error", Some(result))
                .unwrap();
        }
    }
}

/// Adds children of `top`: with an account and without, under way and ended.
fn add_children(world: &mut RunnerFixture) {
    world.spawn("top", "rich", Some(90_000_000));
    world.spawn("rich", "rich/poor", None);
    world.spawn("rich", "rich/rich", Some(20_000_000));
    world.spawn("top", "closed", Some(30_000_000));
    world.spawn("top", "plain", None);
    world.start("rich/poor", Some("hi")).unwrap();
    world.start("rich/rich", Some("hi")).unwrap();
    run_to_end(world, "closed");
    run_to_end(world, "plain");
    world.service.recover(&["nobody".to_owned()], None).unwrap();
    world
        .service
        .claim("rich/rich", "h/claims", HolderProof::Dead)
        .unwrap();
}
