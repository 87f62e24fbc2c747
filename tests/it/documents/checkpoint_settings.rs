//! The settings of checkpoints in effect: what triggers a save, what a failed one comes to.

use super::checkpoint_saves::block_on;
use super::fixture::{DocumentsFixture, draft};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use threadkeep::documents::checkpoints::{CHECKPOINT_FAILED, COPIES_DIR, STATE_FILE};
use threadkeep::documents::{DocumentError, DocumentState, DocumentWriter, ThreadDocuments};
use threadkeep::driver::{CommitNotice, CommitObserver};
use threadkeep::wit::{Cause, registry};

const FILE: &str = ".ai/config/state_persistence.yaml";
const SCRIPT: &str = r#"[
  {"text": "I look.", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "A note.", "usage": {"input": 150, "output": 20}}
]"#;

fn world(settings: &str) -> DocumentsFixture {
    DocumentsFixture::with_files(&[(".ai/script.json", SCRIPT), (FILE, settings)])
}

/// Lets every save that a commit has asked for be made before its caller goes on: then no two of
/// them become one.
struct FlushOnCommit(DocumentWriter);

impl CommitObserver for FlushOnCommit {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        self.0.on_commit(commit);
        block_on(self.0.flush());
    }

    fn wants_reasons(&self) -> bool {
        self.0.wants_reasons()
    }
}

fn observer(world: &DocumentsFixture) -> Arc<FlushOnCommit> {
    Arc::new(FlushOnCommit(DocumentWriter::new(world.documents.clone())))
}

/// Returns the versions of which there are copies.
fn copies(world: &DocumentsFixture, thread: &str) -> BTreeSet<u64> {
    let copies = world.thread_dir(thread).open_dir(COPIES_DIR).unwrap();
    let names = copies
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let versions = names.map(|name| {
        let name = name.into_string().unwrap();
        name.strip_suffix(".json").unwrap().parse().unwrap()
    });
    versions.collect()
}

/// Version 1 hands out the first model call, 2 records its reply, 3 the results of the tool with
/// the next call, 4 the last reply.
#[tokio::test(flavor = "multi_thread")]
async fn each_trigger_saves_the_commits_that_it_names() {
    let off = |names: &[&str]| {
        let lines = names
            .iter()
            .map(|name| format!("    {name}: {{enabled: false}}\n"));
        format!("checkpoint:\n  triggers:\n{}", lines.collect::<String>())
    };
    for (settings, expected) in [
        (String::new(), &[1, 2, 3, 4][..]),
        (off(&["pre_turn"]), &[2, 3, 4]),
        (off(&["post_llm"]), &[1, 3, 4]),
        (off(&["post_tools"]), &[1, 2, 3, 4]),
        (off(&["pre_turn", "post_tools"]), &[2, 4]),
        (off(&["pre_turn", "post_llm"]), &[3, 4]),
        (off(&["pre_turn", "post_llm", "post_tools"]), &[4]),
    ] {
        let world = world(&settings);
        let chat = world.chat("talk").await;
        let ended = world.say_observed(&chat, "look", observer(&world)).await;
        assert_eq!(
            (&*ended.status, ended.version),
            ("idle", 4),
            "{:?}",
            ended.cause
        );
        assert_eq!(
            copies(&world, &chat),
            expected.iter().copied().collect(),
            "{settings}"
        );
    }
}

/// Symptom to be avoided: a save for each commit of a fast run. A run that goes on is saved at most
/// once a second, and its end at once.
#[tokio::test(flavor = "multi_thread")]
async fn saves_of_a_fast_run_become_few_and_the_end_is_among_them() {
    let world = world("");
    let chat = world.chat("talk").await;
    let writer = Arc::new(DocumentWriter::new(world.documents.clone()));
    let observer = Arc::<DocumentWriter>::clone(&writer);
    world.say_observed(&chat, "look", observer).await;
    assert!(writer.flush().await.failed.is_empty());
    let saved = copies(&world, &chat);
    assert!(saved.contains(&4), "{saved:?}");
}

/// Creates a chat that may read files and has a cap of turns.
pub(super) async fn limited_chat(world: &DocumentsFixture, turns: u32) -> String {
    let mut limited = registry::Draft {
        capabilities: vec!["execute.tool.read_file".to_owned()],
        ..draft("talk")
    };
    limited.limits.turns = Some(turns);
    world.open.tenant().create(limited).await.unwrap().id
}

/// The reason why `state.json` cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SaveObstacle {
    /// A directory in its place.
    Directory,
    /// The disk is full, once a part of the file is written.
    FullDisk,
}

/// Runs a chat into its cap of turns while nothing can be saved; returns its status, its cause, and
/// what the flush said.
async fn run_without_saves(
    settings: &str,
    turns: u32,
    obstacle: SaveObstacle,
) -> (String, Option<Cause>, Vec<String>) {
    let world = world(settings);
    let tenant = world.open.tenant();
    let chat = limited_chat(&world, turns).await;
    let parsed = world.documents.checkpoint_settings().unwrap();
    world.documents.refresh(&chat).await.unwrap();
    world
        .documents
        .save_checkpoint(&chat, &parsed)
        .await
        .unwrap();
    let dir = world.thread_dir(&chat);
    let before = dir.read(STATE_FILE).unwrap();
    let documents = match obstacle {
        SaveObstacle::Directory => {
            dir.remove_file(STATE_FILE).unwrap();
            dir.create_dir(STATE_FILE).unwrap();
            world.documents.clone()
        }
        SaveObstacle::FullDisk => full_disk(&world, &Arc::new(AtomicBool::new(true))),
    };
    let writer = Arc::new(DocumentWriter::new(documents));
    let driver = world
        .open
        .driver()
        .with_observer(Arc::<DocumentWriter>::clone(&writer));
    let (sink, stop) = (
        threadkeep::driver::EventSink::none(),
        threadkeep::driver::StopReceiver::never(),
    );
    let input = threadkeep::models::user_message("look");
    // A run that is fenced because its thread was ended is no answer: the thread is.
    let _ = driver.run(&chat, Some(input), &sink, &stop).await;
    let said = writer.flush().await.failed.into_iter();
    let said: Vec<String> = said.map(|(_, error)| format!("{error:?}")).collect();
    let now = tenant.get(&chat).await.unwrap();
    let document = dir.read_to_string("thread.json").unwrap();
    assert!(
        document.contains(&format!("\"status\": \"{}\"", now.status)),
        "{document}"
    );
    if obstacle == SaveObstacle::FullDisk {
        assert_eq!(
            dir.read(STATE_FILE).unwrap(),
            before,
            "the old file is whole"
        );
        assert!(!dir.exists("state.json.new"));
    }
    (now.status, now.cause, said)
}

/// Documents of the same files, whose checkpoints find the disk full while `is_full`.
fn full_disk(world: &DocumentsFixture, is_full: &Arc<AtomicBool>) -> ThreadDocuments {
    let is_full = Arc::clone(is_full);
    let fault = move |path: &str| {
        let full = path.ends_with("state.json.new") && is_full.load(Ordering::SeqCst);
        match full {
            true => Err(std::io::Error::from(std::io::ErrorKind::StorageFull)),
            false => Ok(()),
        }
    };
    let threads = world.open.threads().unwrap().try_clone().unwrap();
    let tenant = world.open.tenant().clone();
    ThreadDocuments::with_fault(tenant, threads, Some(Arc::new(fault)))
}

const FAST: &str = "checkpoint: {performance: {retry: {enabled: false}}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_that_must_be_saved_and_cannot_ends_the_thread() {
    for (obstacle, why) in [
        (
            SaveObstacle::Directory,
            "talk/state.json is not a regular file",
        ),
        (SaveObstacle::FullDisk, "no storage space"),
    ] {
        let (status, cause, said) = run_without_saves(FAST, 1, obstacle).await;
        let cause = cause.expect("it has ended by an error");
        assert_eq!((&*status, &*cause.code), ("error", CHECKPOINT_FAILED));
        assert!(cause.message.contains(why), "{cause:?}");
        assert_eq!(said.len(), 1, "{said:?}");
        let lower = "checkpoint: {triggers: {on_suspend: {priority: 9}}, \
                     performance: {retry: {enabled: false}}}\n";
        let (status, cause, said) = run_without_saves(lower, 1, obstacle).await;
        let code = cause.map(|cause| cause.code);
        assert_eq!(
            (&*status, code.as_deref()),
            ("suspended", Some("turns_exceeded"))
        );
        assert_eq!(said.len(), 1, "it is told all the same");
    }
}

/// A disk that was full has room again: the next save makes it good.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_once_and_the_next_save_makes_it_good() {
    let world = world(FAST);
    let chat = world.chat("talk").await;
    let is_full = Arc::new(AtomicBool::new(true));
    let documents = full_disk(&world, &is_full);
    let writer = Arc::new(DocumentWriter::new(documents));
    // Each commit asks for a save, and none can be made.
    let flushing = Arc::new(FlushOnCommit(DocumentWriter::new(full_disk(
        &world, &is_full,
    ))));
    let ended = world.say_observed(&chat, "look", flushing).await;
    assert_eq!(
        (&*ended.status, ended.version),
        ("idle", 4),
        "{:?}",
        ended.cause
    );
    assert!(!world.thread_dir(&chat).exists(STATE_FILE));
    writer.enqueue(&chat);
    let told = writer.flush().await.failed;
    assert_eq!(told.len(), 1, "{told:?}");
    is_full.store(false, Ordering::SeqCst);
    writer.enqueue(&chat);
    assert!(writer.flush().await.failed.is_empty());
    let states = world.documents.check(&chat).await.unwrap();
    assert_eq!(states.checkpoint, DocumentState::Current);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_save_that_cannot_be_made_stops_a_run_only_with_priority_ten() {
    for obstacle in [SaveObstacle::Directory, SaveObstacle::FullDisk] {
        let (status, _, said) = run_without_saves(FAST, 9, obstacle).await;
        assert_eq!((&*status, said.len()), ("idle", 1), "{obstacle:?}");
    }
    for trigger in ["pre_turn", "post_llm", "post_tools"] {
        let world = world(&format!(
            "checkpoint: {{triggers: {{{trigger}: {{priority: 10}}}}, \
             performance: {{retry: {{enabled: false}}}}}}\n"
        ));
        let chat = world.chat("talk").await;
        world.documents.refresh(&chat).await.unwrap();
        world.thread_dir(&chat).create_dir(STATE_FILE).unwrap();
        let driver = world.open.driver().with_observer(observer(&world));
        let (sink, stop) = (
            threadkeep::driver::EventSink::none(),
            threadkeep::driver::StopReceiver::never(),
        );
        let input = threadkeep::models::user_message("look");
        let _ = driver.run(&chat, Some(input), &sink, &stop).await;
        let now = world.open.tenant().get(&chat).await.unwrap();
        assert_eq!(now.status, "error", "{trigger}");
        let page = world.open.tenant().entries(&chat, 0, 10, None).await;
        let entries = page.unwrap().entries;
        let failed = entries.iter().find(|entry| entry.reason == "error");
        let expected = match trigger {
            "pre_turn" => 2,
            "post_llm" => 3,
            _ => 4,
        };
        assert_eq!(failed.unwrap().version, expected, "{trigger}");
    }
}

/// A save that fails is tried again, as often as the settings say.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_save_is_tried_again() {
    for (retry, is_saved) in [
        ("{backoff: constant, max_attempts: 10}", true),
        ("{max_attempts: 1}", false),
        ("{enabled: false}", false),
    ] {
        let world = world(&format!(
            "checkpoint: {{performance: {{retry: {retry}}}}}\n"
        ));
        let chat = world.chat("talk").await;
        world.documents.refresh(&chat).await.unwrap();
        let dir = world.thread_dir(&chat);
        dir.create_dir(STATE_FILE).unwrap();
        let writer = DocumentWriter::new(world.documents.clone());
        writer.enqueue(&chat);
        let cleared = dir.try_clone().unwrap();
        let clear = async move {
            tokio::time::sleep(Duration::from_millis(250)).await;
            cleared.remove_dir(STATE_FILE).unwrap();
        };
        let (report, ()) = tokio::join!(writer.flush(), clear);
        assert_eq!(report.failed.is_empty(), is_saved, "{retry}");
        assert_eq!(dir.exists(STATE_FILE), is_saved, "{retry}");
    }
}

/// The old checkpoint is whole while a new one cannot be written.
#[tokio::test(flavor = "multi_thread")]
async fn a_save_that_fails_leaves_the_checkpoint_before() {
    let world = world(FAST);
    let chat = world.chat("talk").await;
    world.say(&chat, "look").await;
    let settings = world.documents.checkpoint_settings().unwrap();
    world
        .documents
        .save_checkpoint(&chat, &settings)
        .await
        .unwrap();
    let dir = world.thread_dir(&chat);
    let before = dir.read(STATE_FILE).unwrap();
    dir.create_dir("state.json.new").unwrap();
    let failed = world.documents.save_checkpoint(&chat, &settings).await;
    assert!(
        matches!(failed, Err(DocumentError::Authority(_))),
        "{failed:?}"
    );
    assert_eq!(dir.read(STATE_FILE).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_not_valid_save_nothing_and_say_so() {
    let world = world("checkpoint: {performance: {atomic: false}}\n");
    let chat = world.chat("talk").await;
    let writer = Arc::new(DocumentWriter::new(world.documents.clone()));
    let observer = Arc::<DocumentWriter>::clone(&writer);
    let ended = world.say_observed(&chat, "look", observer).await;
    assert_eq!(ended.status, "idle", "the run goes on");
    let report = writer.flush().await;
    assert!(
        matches!(&report.failed[..], [(_, DocumentError::Settings(_))]),
        "{report:?}"
    );
    assert!(!world.thread_dir(&chat).exists(STATE_FILE));
}
