//! Stores that open on first use and close when they are idle.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use threadkeep::storage::sqlite::{LazyStore, StorePool, StorePoolOptions};
use threadkeep::storage::{StorageBackend, StorageError};

use super::{FILE, code, commit, dir, get, open, options, put_op, try_open};

/// `<what>:<directory>`; without it [`child`] does nothing.
pub(super) const VARIABLE: &str = "THREADKEEP_TEST_STORES";
const TENANTS: usize = 1_000;
/// Checks, 10 ms apart, of what another thread does before a test gives up.
const LOOKS_MAX: usize = 3_000;

fn stores(open_max: usize) -> StorePool {
    StorePool::new(StorePoolOptions {
        open_max,
        // Stores close only when a test closes them.
        idle_after: Duration::from_secs(3_600),
    })
}

fn lazy(stores: &StorePool, path: &Path) -> LazyStore {
    let path = path.to_owned();
    stores.store(move || Ok(dir(&path)), FILE, options())
}

fn folders<const N: usize>(temp: &tempfile::TempDir) -> [PathBuf; N] {
    std::array::from_fn(|at| {
        let folder = temp.path().join(at.to_string());
        std::fs::create_dir(&folder).unwrap();
        folder
    })
}

/// Runs a task in another process of this test, so that no other test's files and threads are
/// counted. Returns its answer.
pub(super) fn run_in_child(what: &str, path: &Path, uid: Option<u32>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["stores::lazy::child", "--exact", "--nocapture"])
        .env(VARIABLE, format!("{what}:{}", path.display()));
    if let Some(uid) = uid {
        std::os::unix::process::CommandExt::uid(&mut command, uid);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// The child process; no test by itself.
#[test]
fn child() {
    let Ok(order) = std::env::var(VARIABLE) else {
        return;
    };
    let (what, path) = order.split_once(':').unwrap();
    match what {
        "tenants" => many_tenants(Path::new(path)),
        "count" => super::cut_commits::add_counts_at(Path::new(path)),
        "full" => super::cut_commits::fill_disk_while_committing(Path::new(path)),
        "open" => drop(try_open(Path::new(path)).unwrap()),
        "read" => println!(
            "\nsaid {}",
            super::damaged_files::read_and_try_to_write(Path::new(path))
        ),
        "planted" => println!(
            "\nsaid {}",
            super::planted_schema::use_planted(Path::new(path))
        ),
        other => panic!("{other}?"),
    }
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Returns the open files and the threads of this process.
fn open_files_and_threads() -> (usize, usize) {
    (count("/proc/self/fd"), count("/proc/self/task"))
}

fn many_tenants(root: &Path) {
    const OPEN_MAX: usize = 8;
    let before = open_files_and_threads();
    let stores = StorePool::new(StorePoolOptions {
        open_max: OPEN_MAX,
        idle_after: Duration::from_millis(50),
    });
    let tenants: Vec<_> = (0..TENANTS)
        .map(|at| lazy(&stores, &root.join(at.to_string())))
        .collect();
    assert_eq!(
        open_files_and_threads(),
        before,
        "tenants that nobody has used hold something"
    );
    let mut most = (0, 0);
    for tenant in &tenants {
        assert_eq!(get(tenant, "a"), Ok(Some("1".to_owned())));
        let now = open_files_and_threads();
        most = (most.0.max(now.0), most.1.max(now.1));
        assert!(stores.open_count() <= OPEN_MAX);
    }
    assert!(
        most.0 <= before.0 + OPEN_MAX * 10,
        "{most:?} after {before:?}"
    );
    assert!(
        most.1 <= before.1 + 1,
        "{most:?} after {before:?}: more than one thread"
    );
    let closed = (0..LOOKS_MAX).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        stores.open_count() == 0
    });
    assert!(closed, "{} stay open", stores.open_count());
    assert_eq!(
        open_files_and_threads(),
        (before.0, before.1 + 1),
        "idle stores hold something"
    );
    // They work as before.
    commit(&tenants[7], &[put_op("a", "2")]);
    assert_eq!(get(&tenants[7], "a"), Ok(Some("2".to_owned())));
    drop((tenants, stores));
    assert_eq!(open_files_and_threads(), before);
}

#[test]
fn a_thousand_idle_tenants_hold_no_file_and_no_thread() {
    let temp = tempfile::tempdir().unwrap();
    let first = tempfile::tempdir().unwrap();
    commit(&open(first.path()), &[put_op("a", "1")]);
    for at in 0..TENANTS {
        let folder = temp.path().join(at.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(first.path().join(FILE), folder.join(FILE)).unwrap();
    }
    run_in_child("tenants", temp.path(), None);
}

#[test]
fn least_recently_used_store_is_closed() {
    let temp = tempfile::tempdir().unwrap();
    let stores = stores(2);
    let [a, b, c] = folders(&temp).map(|folder| (lazy(&stores, &folder), folder));
    let is_open = |folder: &Path| folder.join("registry.db-wal").exists();
    assert_eq!(stores.open_count(), 0);
    for (store, _) in [&a, &b, &a, &c] {
        commit(store, &[put_op("a", "1")]);
    }
    assert_eq!(stores.open_count(), 2);
    assert!(is_open(&a.1) && !is_open(&b.1) && is_open(&c.1));
    assert_eq!(get(&b.0, "a"), Ok(Some("1".to_owned())));
    assert!(!is_open(&a.1) && is_open(&b.1) && is_open(&c.1));
    drop(c.0);
    assert_eq!(stores.open_count(), 1, "a store that is dropped is closed");
    stores.close_idle();
    assert_eq!(stores.open_count(), 0);
    assert!(!is_open(&b.1));
}

#[test]
fn when_all_are_in_use_the_call_may_be_repeated() {
    let temp = tempfile::tempdir().unwrap();
    let stores = stores(1);
    let [one, two] = folders(&temp);
    let second = Arc::new(lazy(&stores, &two));
    let answers = Arc::new(Mutex::new(Vec::new()));
    // While the first opens it is in use: the second is asked then.
    let (asked, heard) = (Arc::clone(&second), Arc::clone(&answers));
    let first = stores.store(
        move || {
            heard.lock().unwrap().push(get(&*asked, "a"));
            Ok(dir(&one))
        },
        FILE,
        options(),
    );
    commit(&first, &[put_op("a", "1")]);
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    assert!(
        matches!(
            &answers[..],
            [Err(error @ StorageError::Unavailable { .. })] if error.retry_unchanged()
        ),
        "{answers:?}"
    );
    assert_eq!(get(&*second, "a"), Ok(None));
    assert_eq!(stores.open_count(), 1);
}

#[test]
fn many_threads_use_more_stores_than_may_be_open() {
    const ROUNDS: u64 = 20;
    let temp = tempfile::tempdir().unwrap();
    let stores = stores(4);
    let tenants: [LazyStore; 6] = folders::<6>(&temp).map(|folder| lazy(&stores, &folder));
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (tenants, stores) = (&tenants, &stores);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let tenant = &tenants[(thread + round as usize) % tenants.len()];
                    commit(tenant, &[put_op(&format!("{thread} {round}"), "1")]);
                    assert!(stores.open_count() <= 4);
                }
            });
        }
    });
    let records =
        |tenant: &LazyStore| tenant.scan("head", "", "", 500, false).unwrap().items.len() as u64;
    assert_eq!(tenants.iter().map(records).sum::<u64>(), 4 * ROUNDS);
}

#[test]
fn a_store_that_was_taken_away_while_it_was_closed_is_not_made_anew() {
    type FileFault = fn(&Path);
    let faults: [(&str, FileFault); 3] = [
        ("deleted", |at| std::fs::remove_file(at).unwrap()),
        ("emptied by another", |at| {
            std::fs::remove_file(at).unwrap();
            std::fs::write(at, "").unwrap();
        }),
        ("replaced by a copy", |at| {
            std::fs::copy(at, at.with_extension("copy")).unwrap();
            std::fs::rename(at.with_extension("copy"), at).unwrap();
        }),
    ];
    for (fault, strike) in faults {
        let temp = tempfile::tempdir().unwrap();
        let stores = stores(2);
        let [folder] = folders(&temp);
        let store = lazy(&stores, &folder);
        commit(&store, &[put_op("a", "1")]);
        stores.close_idle();
        let at = folder.join(FILE);
        std::fs::hard_link(&at, temp.path().join("kept")).unwrap();
        strike(&at);
        let before = super::files(&folder);
        for _ in 0..2 {
            assert_eq!(code(&get(&store, "a")), "replaced", "{fault}");
            assert_eq!(
                code(&store.commit(&[put_op("a", "2")], false)),
                "replaced",
                "{fault}"
            );
        }
        assert!(
            super::files(&folder) == before,
            "{fault}: the directory was changed"
        );
        assert_eq!(stores.open_count(), 0, "what did not open counts");
        // With its file back, the store is the same again.
        std::fs::rename(temp.path().join("kept"), &at).unwrap();
        assert_eq!(get(&store, "a"), Ok(Some("1".to_owned())), "{fault}");
    }
}

#[test]
fn unopenable_store_fails_each_of_its_calls_alone() {
    let temp = tempfile::tempdir().unwrap();
    let stores = stores(1);
    let [good, bad] = folders(&temp);
    std::fs::write(
        bad.join(FILE),
        "no database, and long enough to be read as one".repeat(100),
    )
    .unwrap();
    let (good, bad) = (lazy(&stores, &good), lazy(&stores, &bad));
    let gone = stores.store(|| Err(std::io::ErrorKind::NotFound.into()), FILE, options());
    for _ in 0..3 {
        assert_eq!(code(&get(&bad, "a")), "corrupt");
        assert_eq!(code(&get(&gone, "a")), "unavailable");
        commit(&good, &[put_op("a", "1")]);
    }
}

/// Symptom: callers of a store that could not be opened waited one after the other, each for an
/// opening of its own. Cause: the lock was held during the opening, and its result was forgotten.
/// Fix: all callers that wait for an opening share its result.
#[test]
fn a_failed_opening_is_shared_by_all_who_waited_for_it() {
    const CALLERS: usize = 16;
    let stores = stores(2);
    let (arrived, openings) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, count) = (Arc::clone(&arrived), Arc::clone(&openings));
    let slow = move || {
        count.fetch_add(1, Ordering::SeqCst);
        while seen.load(Ordering::SeqCst) < CALLERS {
            std::thread::yield_now();
        }
        // Time in which all of them begin to wait.
        std::thread::sleep(Duration::from_millis(100));
        Err(std::io::ErrorKind::NotFound.into())
    };
    let store = stores.store(slow, FILE, options());
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                arrived.fetch_add(1, Ordering::SeqCst);
                assert_eq!(code(&get(&store, "a")), "unavailable");
            });
        }
    });
    let shared = openings.swap(0, Ordering::SeqCst);
    assert!(
        shared <= CALLERS / 4,
        "{shared} openings for {CALLERS} calls"
    );
    // A later caller has an opening of its own.
    assert_eq!(code(&get(&store, "a")), "unavailable");
    assert_eq!(openings.load(Ordering::SeqCst), 1);
    assert_eq!(stores.open_count(), 0);
}

#[test]
fn an_opening_that_panics_is_an_error_for_those_who_wait_and_leaves_no_trace() {
    let temp = tempfile::tempdir().unwrap();
    let stores = stores(1);
    let [folder] = folders(&temp);
    let fails = Arc::new(AtomicUsize::new(1));
    let store = stores.store(
        move || {
            assert_eq!(fails.swap(0, Ordering::SeqCst), 0, "meant");
            Ok(dir(&folder))
        },
        FILE,
        options(),
    );
    let call = std::panic::AssertUnwindSafe(|| get(&store, "a"));
    assert!(std::panic::catch_unwind(call).is_err());
    assert_eq!(stores.open_count(), 0);
    commit(&store, &[put_op("a", "1")]);
}

#[test]
fn stores_that_never_close_by_themselves() {
    let temp = tempfile::tempdir().unwrap();
    let stores = StorePool::new(StorePoolOptions {
        open_max: 1,
        idle_after: Duration::MAX,
    });
    let [one, two] = folders(&temp).map(|folder| lazy(&stores, &folder));
    for store in [&one, &two, &one] {
        commit(store, &[put_op("a", "1")]);
        assert_eq!(stores.open_count(), 1);
    }
}

/// An operator puts a backup in the place of a store, and the service goes on with it.
#[test]
fn forgotten_store_is_reopened_from_the_current_file() {
    let temp = tempfile::tempdir().unwrap();
    let stores = stores(1);
    let [folder] = folders(&temp);
    let (at, backup) = (folder.join(FILE), temp.path().join("backup"));
    let store = lazy(&stores, &folder);
    commit(&store, &[put_op("a", "old")]);
    stores.close_idle();
    std::fs::copy(&at, &backup).unwrap();
    commit(&store, &[put_op("a", "new")]);
    for open in [true, false] {
        if !open {
            stores.close_idle();
        }
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.join(format!("{FILE}{suffix}")));
        }
        std::fs::copy(&backup, temp.path().join("copy")).unwrap();
        std::fs::rename(temp.path().join("copy"), &at).unwrap();
        assert_eq!(code(&get(&store, "a")), "replaced", "open: {open}");
        store.forget_identity();
        assert_eq!(get(&store, "a"), Ok(Some("old".to_owned())), "open: {open}");
        commit(&store, &[put_op("a", "newer")]);
        assert_eq!(stores.open_count(), 1);
    }
}
