//! `state.json` compared with the records: by `check`, the audit and a repair.

use super::checkpoint_settings::limited_chat;
use super::fixture::{DocumentsFixture, draft};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::audit::StoreInvariant;
use threadkeep::clock::{ClockTime, HostClock, ManualClock, SystemClock};
use threadkeep::component::TenantContext;
use threadkeep::documents::checkpoints::{
    COPIES_DIR, CheckpointSettings, CompletionAction, STATE_FILE,
};
use threadkeep::documents::{DocumentState, ThreadDocuments};
use threadkeep::tenant::Tenant;
use threadkeep::wit::runner::SignalKind;

fn settings() -> CheckpointSettings {
    CheckpointSettings::parse(None).unwrap()
}

async fn save(world: &DocumentsFixture, thread: &str) {
    let saved = world.documents.save_checkpoint(thread, &settings()).await;
    assert!(saved.unwrap().copies_problem.is_none());
}

async fn state(world: &DocumentsFixture, thread: &str) -> DocumentState {
    let states = world.documents.check(thread).await.unwrap();
    assert!(!states.is_checkpoint_overdue);
    states.checkpoint
}

/// Documents of the same files and store, by a clock of the test.
fn documents_at(world: &DocumentsFixture, clock: &Arc<ManualClock>) -> ThreadDocuments {
    let context = world.open.tenant().context();
    let storage = Arc::clone(&context.storage);
    let mut moved = TenantContext::new(storage, Arc::clone(&context.library));
    moved.clock = Arc::<ManualClock>::clone(clock);
    let tenant = Tenant::new(super::fixture::engine(), moved);
    ThreadDocuments::new(tenant, world.open.threads().unwrap().try_clone().unwrap())
}

fn hours_from_now(hours: i64) -> ClockTime {
    let now = SystemClock.now();
    ClockTime {
        seconds: now.seconds + hours * 3_600,
        ..now
    }
}

/// A way in which a file can be changed.
type FileEdit = fn(&str) -> String;

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_checkpoint_is_found_and_saved_anew() {
    let edits: [(&str, FileEdit); 8] = [
        ("torn", |text| text[..400].to_owned()),
        ("empty", |_| String::new()),
        ("no object", |_| "[]".to_owned()),
        ("newer", |text| text.replace("\"1.1.0\"", "\"2.0.0\"")),
        ("its status", |text| {
            text.replace("\"idle\"", "\"completed\"")
        }),
        ("a message", |text| text.replace("hello", "hullo")),
        ("its figures", |text| {
            text.replace("\"turns\": 2", "\"turns\": 1")
        }),
        ("a later version", |text| {
            let mut document: Value = serde_json::from_str(text).unwrap();
            document["history_version"] = 99.into();
            document.to_string()
        }),
    ];
    let world = DocumentsFixture::new();
    let thread = world.chat("talk").await;
    assert_eq!(state(&world, &thread).await, DocumentState::Missing);
    world.say(&thread, "hello").await;
    world.documents.refresh(&thread).await.unwrap();
    save(&world, &thread).await;
    assert_eq!(state(&world, &thread).await, DocumentState::Current);
    let good = world
        .thread_dir(&thread)
        .read_to_string(STATE_FILE)
        .unwrap();
    for (what, edit) in edits {
        let bad = edit(&good);
        assert_ne!(bad, good, "{what}");
        world.thread_dir(&thread).write(STATE_FILE, bad).unwrap();
        assert_eq!(state(&world, &thread).await, DocumentState::Other, "{what}");
        let found = world.open.audit().await.unwrap().findings;
        let [finding] = &found[..] else {
            panic!("{what}: {found:#?}")
        };
        assert_eq!(finding.invariant, StoreInvariant::Documents, "{what}");
        assert!(finding.found.contains(STATE_FILE), "{what}: {finding}");
        world.documents.repair(&thread).await.unwrap();
        assert_eq!(
            state(&world, &thread).await,
            DocumentState::Current,
            "{what}"
        );
    }
    assert_eq!(world.open.audit().await.unwrap().findings, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_checkpoint_is_compared_with_its_version() {
    let world = DocumentsFixture::new();
    let thread = world.chat("talk").await;
    world.say(&thread, "hello").await;
    save(&world, &thread).await;
    let saved = world.version(&thread).await;
    let old = world
        .thread_dir(&thread)
        .read_to_string(STATE_FILE)
        .unwrap();
    world.say(&thread, "and again").await;
    world.documents.refresh(&thread).await.unwrap();
    assert_eq!(state(&world, &thread).await, DocumentState::Stale(saved));
    assert_eq!(world.open.audit().await.unwrap().findings, []);
    let mut edited: Value = serde_json::from_str(&old).unwrap();
    edited.as_object_mut().unwrap().remove("messages_hash");
    edited["messages"][0]["content"] = "hullo".into();
    let edited = edited.to_string();
    let foreign = old.replace("\"thread_id\": \"talk\"", "\"thread_id\": \"other\"");
    for bad in [edited, foreign] {
        world.thread_dir(&thread).write(STATE_FILE, bad).unwrap();
        assert_eq!(state(&world, &thread).await, DocumentState::Other);
        assert_eq!(world.open.audit().await.unwrap().findings.len(), 1);
    }
    world.documents.repair(&thread).await.unwrap();
    assert_eq!(state(&world, &thread).await, DocumentState::Current);
}

/// A thread that has stopped is saved at once: an older checkpoint of it is one whose save failed.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_checkpoint_of_a_stopped_thread_is_overdue() {
    let world = DocumentsFixture::new();
    let thread = limited_chat(&world, 1).await;
    save(&world, &thread).await;
    let ended = world.say(&thread, "look").await;
    assert_eq!(ended.status, "suspended", "{:?}", ended.cause);
    let clock = Arc::new(ManualClock::new(hours_from_now(0)));
    let documents = documents_at(&world, &clock);
    let check = || async {
        let states = documents.check(&thread).await.unwrap();
        (states.checkpoint, states.is_checkpoint_overdue)
    };
    let stale = DocumentState::Stale(0);
    assert_eq!(check().await, (stale, false), "it may be on its way");
    clock.advance(Duration::from_secs(180));
    assert_eq!(check().await, (stale, true));
    documents.repair(&thread).await.unwrap();
    assert_eq!(check().await, (DocumentState::Current, false));
    // The same of one that has ended, whatever its run did.
    let tenant = world.open.tenant();
    tenant.signal(&thread, "k", SignalKind::Kill).await.unwrap();
    let (state, overdue) = check().await;
    assert!(
        matches!(state, DocumentState::Stale(_)) && overdue,
        "{state:?}"
    );
}

/// A clock that steps back an hour: versions order the files, and nothing young is removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_back_changes_no_order_and_removes_nothing() {
    let world = DocumentsFixture::new();
    let tenant = world.open.tenant();
    let thread = tenant.create(draft("talk")).await.unwrap().id;
    let clock = Arc::new(ManualClock::new(hours_from_now(0)));
    let documents = documents_at(&world, &clock);
    let settings = CheckpointSettings {
        completion: CompletionAction::Keep,
        ..settings()
    };
    let mut times = Vec::new();
    for (version, hours) in [(1, 0), (2, -1), (3, -1), (4, 0)] {
        clock.set(hours_from_now(hours));
        let note = r#"{"type":"note","name":"n","body":1}"#.to_owned();
        tenant
            .append(&thread, None, version - 1, vec![note])
            .await
            .unwrap();
        let saved = documents.save_checkpoint(&thread, &settings).await.unwrap();
        assert!(saved.copies_problem.is_none(), "{saved:?}");
        assert_eq!(saved.version, version);
        let states = documents.check(&thread).await.unwrap();
        assert_eq!(states.checkpoint, DocumentState::Current, "{version}");
        let text = world
            .thread_dir(&thread)
            .read_to_string(STATE_FILE)
            .unwrap();
        let text: Value = serde_json::from_str(&text).unwrap();
        times.push(text["saved_at"].as_str().unwrap().to_owned());
        let copies = world.thread_dir(&thread).open_dir(COPIES_DIR).unwrap();
        for version in 1..=version {
            assert!(copies.exists(format!("{version}.json")), "{version}");
        }
    }
    assert!(times[1] < times[0] && times[3] > times[2], "{times:?}");
    clock.set(hours_from_now(-1));
    let pruned = documents.prune_all(&settings, true).await.unwrap();
    assert_eq!(pruned.files, []);
}
