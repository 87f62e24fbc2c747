//! Links and other objects planted where documents are written: nothing outside is read, written or
//! removed.

use super::fixture::{ALL, DocumentsFixture};
use threadkeep::authority::AuthorityError;
use threadkeep::documents::{Document, DocumentError};

/// Text of the files outside, which must not change.
const KEEP: &str = "keep";

fn refusal_word<T: std::fmt::Debug>(result: Result<T, DocumentError>) -> &'static str {
    match result {
        Err(DocumentError::Authority(AuthorityError::Link { .. })) => "link",
        Err(DocumentError::Authority(AuthorityError::NotDirectory { .. })) => "not-directory",
        Err(DocumentError::Authority(AuthorityError::NotRegular { .. })) => "not-regular",
        other => panic!("not refused as it should be: {other:?}"),
    }
}

/// Checks that every entry is refused with `word`, and that nothing outside has changed.
async fn assert_refused(world: &DocumentsFixture, thread: &str, word: &str, what: &str) {
    assert_eq!(
        refusal_word(world.documents.refresh(thread).await),
        word,
        "{what}"
    );
    assert_eq!(
        refusal_word(world.documents.repair(thread).await),
        word,
        "{what}"
    );
    assert_eq!(
        refusal_word(world.documents.check(thread).await),
        word,
        "{what}"
    );
    assert_outside(world, what);
}

fn assert_outside(world: &DocumentsFixture, what: &str) {
    for name in ALL.map(Document::file_name) {
        let kept = world.root.read_to_string(format!("outside/{name}"));
        assert_eq!(kept.unwrap(), KEEP, "{what}");
    }
    let count = world.root.read_dir("outside").unwrap().count();
    assert_eq!(count, ALL.len(), "{what}");
}

async fn world() -> (DocumentsFixture, String) {
    let world = DocumentsFixture::new();
    world.root.create_dir("outside").unwrap();
    for document in ALL {
        let name = format!("outside/{}", document.file_name());
        world.root.write(name, KEEP).unwrap();
    }
    let thread = world.chat("a/b").await;
    world.say(&thread, "hello").await;
    (world, thread)
}

#[tokio::test(flavor = "multi_thread")]
async fn links_at_directories_are_refused() {
    let (world, thread) = world().await;
    let threads = world.open.threads().unwrap();
    // Relative to .ai/threads or .ai/threads/a; the last ones dangle, loop, or stay inside.
    let targets = [
        "../../../outside",
        "../../../../outside",
        "gone",
        "b",
        "a",
        ".",
        "..",
    ];
    for target in targets {
        threads.symlink(target, "a").unwrap();
        assert_refused(&world, &thread, "link", target).await;
        threads.remove_file("a").unwrap();
        threads.create_dir("a").unwrap();
        threads.symlink(target, "a/b").unwrap();
        assert_refused(&world, &thread, "link", target).await;
        threads.remove_dir_all("a").unwrap();
    }
    threads.write("a", "a file").unwrap();
    assert_refused(&world, &thread, "not-directory", "a file").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_became_a_link_is_refused() {
    let (world, thread) = world().await;
    world.documents.refresh(&thread).await.unwrap();
    let threads = world.open.threads().unwrap();
    threads.rename("a/b", threads, "moved").unwrap();
    threads.symlink("../../../../outside", "a/b").unwrap();
    world.say(&thread, "more").await;
    assert_refused(&world, &thread, "link", "swapped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_at_file_names_are_refused() {
    let (world, thread) = world().await;
    world.documents.refresh(&thread).await.unwrap();
    for document in ALL {
        let name = document.file_name();
        let place = world.thread_dir(&thread);
        let outside = format!("../../../../../outside/{name}");
        for target in [&outside, "gone", name, "thread.json", ".", "/etc/hostname"] {
            place.remove_file(name).unwrap();
            place.symlink_contents(target, name).unwrap();
            assert_refused(&world, &thread, "link", &format!("{name} -> {target}")).await;
        }
        place.remove_file(name).unwrap();
        place.create_dir(name).unwrap();
        assert_refused(&world, &thread, "not-regular", name).await;
        place.remove_dir(name).unwrap();
        world.documents.refresh(&thread).await.unwrap();
        world.assert_current(&thread).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_through_another_name() {
    let (world, thread) = world().await;
    world.documents.refresh(&thread).await.unwrap();
    world.say(&thread, "more").await;
    let place = world.thread_dir(&thread);
    for document in ALL {
        let name = document.file_name();
        let temporary = format!("{name}.new");
        place.remove_file(name).unwrap();
        let outside = world.root.open_dir("outside").unwrap();
        outside.hard_link(name, &place, name).unwrap();
        place
            .symlink_contents(format!("../../../../../outside/{name}"), &temporary)
            .unwrap();
    }
    world.documents.refresh(&thread).await.unwrap();
    assert_outside(&world, "hard links");
    world.assert_current(&thread).await;
}
