//! A directory that becomes a link to the outside and back while a host works in it, as fast as a
//! thread can swap it.

use super::fixture::{GuardedProject, OWN, chat};
use cap_std::fs::Dir;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use threadkeep::authority::{HolderLock, dead_processes, remove_lock_files};
use threadkeep::documents::ThreadDocuments;
use threadkeep::library::TenantLibrary;
use threadkeep::tools::{ToolSet, files::FilesTools};
use threadkeep_tests::corpus::assert_clean;

/// Least number of the host's operations while the directory is swapped.
const ROUNDS: usize = 150;
/// Longest wait for the swapping thread.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);
/// Swaps that must have happened meanwhile: the swapping thread may be scheduled late.
const SWAPS_MIN: usize = 200;

/// Swaps `at` with a link to `outside` until `stop` is set; then the directory is back. Counts the
/// swaps.
fn swap(at: &Path, outside: &Path, stop: &AtomicBool, swaps: &AtomicUsize) {
    let aside = at.with_extension("aside");
    while !stop.load(Ordering::Relaxed) {
        // Between the two nothing is there, which is also worth testing.
        if std::fs::rename(at, &aside).is_ok() {
            // The host may have made a directory here meanwhile; then that one is swapped next.
            let linked = symlink(outside, at).is_ok();
            std::thread::yield_now();
            if linked {
                std::fs::remove_file(at).unwrap();
            }
            if std::fs::rename(&aside, at).is_err() {
                std::fs::remove_dir_all(&aside).unwrap();
            }
        }
        swaps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `work` again and again while `place` is swapped; checks that its answers never contain a
/// canary and that there are successes and failures.
async fn race(
    world: &GuardedProject,
    place: &str,
    mut work: impl AsyncFnMut() -> Result<String, String>,
) {
    let at = world.path.join(place);
    let outside = world.outside.path().to_owned();
    let (mut done, mut refused) = (0, 0);
    let shared = Arc::new((AtomicBool::new(false), AtomicUsize::new(0)));
    let swapper = std::thread::spawn({
        let shared = Arc::clone(&shared);
        move || swap(&at, &outside, &shared.0, &shared.1)
    });
    let (stop, swaps) = &*shared;
    let begun = Instant::now();
    let few = || swaps.load(Ordering::Relaxed) < SWAPS_MIN && begun.elapsed() < WAIT_TIME_MAX;
    while done + refused < ROUNDS || few() {
        match work().await {
            Ok(text) => {
                done += 1;
                assert_clean(place, &text);
            }
            Err(text) => {
                refused += 1;
                assert_clean(place, &text);
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    let swaps = swaps.load(Ordering::Relaxed);
    world.outside.assert_untouched(&format!("swapping {place}"));
    assert!(swaps >= SWAPS_MIN);
    println!("{place}: {swaps} swaps, {done} times done, {refused} times refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_swapped_while_documents_are_written() {
    for place in [".ai/threads/a", ".ai/threads/a/b"] {
        let world = GuardedProject::new();
        let open = world.open(false).unwrap();
        open.tenant().create(chat("a/b")).await.unwrap();
        let threads = open.threads().expect("it was opened for writing");
        let documents = ThreadDocuments::new(open.tenant().clone(), threads.try_clone().unwrap());
        documents.refresh("a/b").await.unwrap();
        race(&world, place, async || {
            let done = documents.repair("a/b").await;
            done.map(|done| format!("{done:?}"))
                .map_err(|error| error.to_string())
        })
        .await;
        documents.repair("a/b").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_swapped_while_locks_are_taken() {
    let world = GuardedProject::new();
    let open = world.open(false).unwrap();
    let threads: &Dir = open.threads().expect("it was opened for writing");
    race(&world, ".ai/threads/locks.d", async || {
        let taken = HolderLock::acquire(threads).map(|lock| lock.nonce().to_owned());
        let swept = dead_processes(threads).and_then(|dead| remove_lock_files(threads, &dead));
        let nonce = taken.map_err(|error| error.to_string())?;
        swept
            .map(|count| format!("{nonce} {count}"))
            .map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_swapped_while_it_is_read() {
    let world = GuardedProject::new();
    // Under the names that the outside has, so that a misled read finds a file.
    for room in [".ai/directives", ".ai/knowledge", "sub"] {
        world.write(&format!("{room}/canary.md"), OWN);
        world.write(&format!("{room}/deep/canary.md"), OWN);
    }
    let open = world.open(false).unwrap();
    for (kind, place) in [
        ("directive", ".ai/directives"),
        ("knowledge", ".ai/knowledge"),
    ] {
        race(&world, place, async || {
            let (shallow, deep) = (
                open.library().document(kind, "canary"),
                open.library().document(kind, "deep/canary"),
            );
            let listed = open.library().names(kind);
            Ok(format!("{shallow:?} {deep:?} {listed:?}"))
        })
        .await;
    }
    let tools = FilesTools::new(world.dir());
    race(&world, "sub", async || {
        let read = tools
            .call("read_file", r#"{"path": "sub/canary.md"}"#)
            .await;
        let found = tools
            .call("search_files", r#"{"path": "sub", "pattern": "3f9c"}"#)
            .await;
        match read.failed {
            true => Err(format!("{} {}", read.content, found.content)),
            false => Ok(format!("{} {}", read.content, found.content)),
        }
    })
    .await;
}
