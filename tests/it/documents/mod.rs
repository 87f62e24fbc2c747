//! Documents against their records: equal byte for byte, whatever sequence of writes produced them.

mod checkpoint_checks;
mod checkpoint_saves;
mod checkpoint_settings;
mod checkpoint_states;
mod confinement;
mod damaged_documents;
mod fixture;
mod usage;

use crate::history::branch_fixture::{PlantedLink, plant_link};
use crate::runner::fixture::RunnerFixture;
use fixture::{ALL, DocumentsFixture, all, draft};
use std::sync::Arc;
use threadkeep::documents::{Document, DocumentState, DocumentWriter, ThreadDocuments};
use threadkeep::driver::{CommitNotice, CommitObserver};
use threadkeep::wit::registry;
use threadkeep_tests::fixture::MapLibrary;

/// Refreshes documents within each commit, before its caller goes on.
struct RefreshOnCommit(ThreadDocuments);

impl CommitObserver for RefreshOnCommit {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        let refresh = self.0.refresh(commit.thread);
        let refreshed =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(refresh));
        let refreshed = refreshed.expect("nothing is in the way");
        assert_eq!(refreshed.rebuilt, [], "what was written is gone on from");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_run_documents_equal_a_full_render() {
    let world = DocumentsFixture::new();
    let thread = world.chat("team/Chat-1").await;
    let writer = Arc::new(DocumentWriter::new(world.documents.clone()));
    for text in ["hello ```` 漢\0", "more", "and more"] {
        let ended = world
            .say_observed(&thread, text, Arc::<DocumentWriter>::clone(&writer))
            .await;
        assert_eq!(ended.status, "idle", "{:?}", ended.cause);
        let flushed = writer.flush().await;
        assert!(flushed.failed.is_empty(), "{:?}", flushed.failed);
        world.assert_current(&thread).await;
    }
    let lines = String::from_utf8(world.read(&thread, Document::Jsonl)).unwrap();
    assert_eq!(lines.find('\n'), Some(1_023));
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("every line is JSON");
    }
    // The id in another case is the same thread, and its directory keeps the case of the record.
    let again = world.documents.refresh("TEAM/chat-1").await.unwrap();
    assert_eq!(again.version, world.version(&thread).await);
    assert!(!world.open.threads().unwrap().exists("TEAM"));
}

/// A link, planted as nothing writes it yet: the driver sends what it rests on, its documents have
/// it, and the audit of store and documents is clean.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_runs_and_has_documents_of_its_whole_path() {
    let world = DocumentsFixture::new();
    let tip = world.chat("tip").await;
    world.say(&tip, "before").await;
    let context = world.open.tenant().context();
    let store = Arc::clone(&context.storage);
    let native = RunnerFixture::over(store, MapLibrary::small());
    let link = PlantedLink {
        tip: &tip,
        id: "link",
        from: 1,
    };
    plant_link(&native, link);
    for thread in [&tip, "link"] {
        world.documents.refresh(thread).await.unwrap();
        world.assert_current(thread).await;
    }
    let before = world.version("link").await;
    let ended = world.say("link", "after").await;
    assert_eq!(ended.status, "idle", "{:?}", ended.cause);
    let refreshed = world.documents.refresh("link").await.unwrap();
    assert_eq!(refreshed.rebuilt, [], "what was written is gone on from");
    world.assert_current("link").await;
    let text = String::from_utf8(world.read("link", Document::Markdown)).unwrap();
    let (first, last) = (text.find("before"), text.find("after"));
    assert!(first.is_some() && first < last, "{text}");
    assert!(text.contains(&format!("<!-- version {}", before + 1)));
    let report = world.open.audit().await.unwrap();
    assert_eq!(report.findings, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_stays_within_its_block() {
    let world = DocumentsFixture::new();
    let thread = world.chat("chat").await;
    world.say(&thread, "# heading\r# heading\n```\n<!--").await;
    world.documents.refresh(&thread).await.unwrap();
    let text = String::from_utf8(world.read(&thread, Document::Markdown)).unwrap();
    let mut fence: Option<usize> = None;
    for line in text.lines() {
        let ticks = line.bytes().take_while(|&byte| byte == b'`').count();
        match fence {
            Some(open) if ticks >= open && line.len() == ticks => fence = None,
            Some(_) => {}
            None if ticks >= 3 => fence = Some(ticks),
            None => {
                let ours = ["", "## ", "# chat", "<sub>", "> ", "*", "<!-- version "];
                let ours = line.is_empty() || ours[1..].iter().any(|begin| line.starts_with(begin));
                assert!(
                    ours || line == ">",
                    "{line:?} stands outside of every block"
                );
                assert!(!line.starts_with("## Tool result: forged"), "{line:?}");
            }
        }
    }
    assert_eq!(fence, None, "every fence is closed");
    assert!(!text.contains(['\0', '\r', '\u{1b}']));
}

#[tokio::test(flavor = "multi_thread")]
async fn continued_documents_equal_rebuilt_ones() {
    let world = DocumentsFixture::new();
    let (often, once) = (world.chat("often").await, world.chat("once").await);
    for text in ["one", "two", "three", "four"] {
        let observer = Arc::new(RefreshOnCommit(world.documents.clone()));
        world.say_observed(&often, text, observer).await;
        world.say(&once, text).await;
        world.assert_current(&often).await;
    }
    let before: Vec<_> = ALL.map(|document| world.read(&often, document)).into();
    let repaired = world.documents.repair(&often).await.unwrap();
    assert_eq!(repaired.rebuilt, [Document::Jsonl, Document::Markdown]);
    let after: Vec<_> = ALL.map(|document| world.read(&often, document)).into();
    assert_eq!(before, after);
    world.documents.refresh(&once).await.unwrap();
    world.assert_current(&once).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn document_of_an_older_head_is_stale() {
    let world = DocumentsFixture::new();
    let thread = world.chat("chat").await;
    let states = world.documents.check(&thread).await.unwrap();
    assert_eq!(states, all(DocumentState::Missing));
    assert!(
        !world.open.threads().unwrap().exists(&thread),
        "a check makes nothing"
    );
    let made = world.documents.refresh(&thread).await.unwrap();
    world.assert_current(&thread).await;
    world.say(&thread, "one").await;
    let states = world.documents.check(&thread).await.unwrap();
    assert_eq!(states, all(DocumentState::Stale(made.version)));
    let made = world.documents.refresh(&thread).await.unwrap();
    assert_eq!(
        (made.version, made.rebuilt),
        (world.version(&thread).await, vec![])
    );
    world.say(&thread, "two").await;
    let states = world.documents.check(&thread).await.unwrap();
    assert_eq!(states.thread, DocumentState::Stale(made.version));
    assert_eq!(states.jsonl, DocumentState::Stale(made.version));
    assert_eq!(states.markdown, DocumentState::Stale(made.version));
    // A title changes the head, the history and the manifest.
    world.documents.refresh(&thread).await.unwrap();
    let titled = world
        .open
        .tenant()
        .set_title(&thread, Some("漢".repeat(200)));
    titled.await.unwrap();
    assert_ne!(
        world.documents.check(&thread).await.unwrap(),
        all(DocumentState::Current)
    );
    world.documents.refresh(&thread).await.unwrap();
    world.assert_current(&thread).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_always_fits_its_line() {
    let world = DocumentsFixture::new();
    let wide = |n: usize| Some("漢".repeat(n));
    for (n, (agent, task, title)) in [
        (wide(66), wide(66), wide(200)),
        (
            Some("\"".repeat(200)),
            Some("\\".repeat(200)),
            Some("\"".repeat(200)),
        ),
        (None, None, Some("\u{1f642}".repeat(200))),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("{}-{n}", "x".repeat(190));
        let draft = registry::Draft {
            agent,
            task,
            title,
            ..draft(&id)
        };
        world.open.tenant().create(draft).await.unwrap();
        world.documents.refresh(&id).await.unwrap();
        world.assert_current(&id).await;
        let line = world.read(&id, Document::Jsonl);
        assert_eq!((line.len(), line[1_023]), (1_024, b'\n'));
        let manifest: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(manifest["threadId"], id.as_str());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_refreshes_of_one_thread_at_once() {
    let world = DocumentsFixture::new();
    let thread = world.chat("chat").await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..10 {
        // Half of them share no state, like other processes.
        let documents = match n % 2 {
            0 => world.documents.clone(),
            _ => ThreadDocuments::new(
                world.open.tenant().clone(),
                world.open.threads().unwrap().try_clone().unwrap(),
            ),
        };
        let thread = thread.clone();
        tasks.spawn(async move {
            for _ in 0..5 {
                documents.refresh(&thread).await.unwrap();
            }
        });
    }
    for text in ["one", "two", "three"] {
        world.say(&thread, text).await;
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let refreshed = world.documents.refresh(&thread).await.unwrap();
    assert_eq!(refreshed.rebuilt, []);
    world.assert_current(&thread).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_cannot_be_written_does_not_touch_the_run() {
    let world = DocumentsFixture::new();
    let thread = world.chat("chat").await;
    world
        .open
        .threads()
        .unwrap()
        .create_dir_all("chat/transcript.md")
        .unwrap();
    let writer = Arc::new(DocumentWriter::new(world.documents.clone()));
    let observer = Arc::<DocumentWriter>::clone(&writer);
    let ended = world.say_observed(&thread, "hello", observer).await;
    assert_eq!(ended.status, "idle");
    let flushed = writer.flush().await;
    let said: Vec<String> = flushed
        .failed
        .iter()
        .map(|(id, e)| format!("{id}: {e}"))
        .collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("chat/transcript.md is not a regular file"),
        "{said:?}"
    );
    for document in [Document::Thread, Document::Jsonl] {
        assert_eq!(
            world.read(&thread, document),
            world.render_expected(&thread, document).await
        );
    }
    world
        .thread_dir(&thread)
        .remove_dir("transcript.md")
        .unwrap();
    writer.enqueue(&thread);
    assert!(writer.flush().await.failed.is_empty());
    world.assert_current(&thread).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_repaired_at_once() {
    let world = DocumentsFixture::new();
    let mut threads = Vec::new();
    for n in 0..120 {
        threads.push(world.chat(&format!("many/t-{n}")).await);
    }
    world.say(&threads[3], "hello").await;
    world.open.threads().unwrap().create_dir("many").unwrap();
    world
        .open
        .threads()
        .unwrap()
        .write("many/t-7", "in the way")
        .unwrap();
    let repaired = world.documents.repair_all().await.unwrap();
    assert_eq!((repaired.threads, repaired.left_out), (119, 0));
    assert_eq!(repaired.failed.len(), 1);
    assert_eq!(repaired.failed[0].0, "many/t-7");
    world.assert_current(&threads[3]).await;
    world.assert_current(&threads[119]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_not_there_has_no_documents() {
    let world = DocumentsFixture::new();
    for id in ["gone", "../outside", "registry.db"] {
        assert!(world.documents.refresh(id).await.is_err(), "{id}");
        assert!(world.documents.check(id).await.is_err(), "{id}");
    }
    assert!(!world.open.threads().unwrap().exists("gone"));
}
