//! The store of a project is moved to the other kind: both ways, with the copy stopped at each
//! step, and with what is refused.

use super::{FILE, dir};
use crate::audit::fixture::ClosedStore;
use cap_std::fs::Dir;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tempfile::TempDir;
use threadkeep::audit::audit;
use threadkeep::authority::HolderLock;
use threadkeep::project::{
    FILES_STORE, ProjectError, ProjectStore, TransferError, TransferLeftovers, TransferStep,
    open_files_store, transfer_store,
};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::storage::whole_store::{CopyError, ListedStore, compare_contents, copy_contents};
use threadkeep::storage::{CommitOp, StorageBackend};

/// The contents of `.ai/threads` with every kind of record, in SQLite.
fn full_threads() -> (TempDir, Dir) {
    let (temp, connection) = ClosedStore::new().copy();
    drop(connection);
    let threads = dir(temp.path());
    (temp, threads)
}

fn open(threads: &Dir, kind: ProjectStore) -> Box<dyn ListedStore> {
    match kind {
        ProjectStore::Sqlite => {
            Box::new(SqliteStore::open(threads, FILE, SqliteOptions::local()).unwrap())
        }
        ProjectStore::Files => Box::new(open_files_store(threads, None).unwrap()),
    }
}

/// The contents of the store that counts.
fn keep_contents(threads: &Dir) -> MemoryStore {
    let kept = MemoryStore::new();
    let kind = ProjectStore::find(threads).unwrap().unwrap();
    copy_contents(&*open(threads, kind), &kept, &mut |_| ()).unwrap();
    kept
}

/// Checks that this store counts, has the same contents, and is sound.
#[track_caller]
fn check_store(threads: &Dir, kind: ProjectStore, contents: &MemoryStore) {
    assert_eq!(ProjectStore::find(threads).unwrap(), Some(kind));
    let store = open(threads, kind);
    compare_contents(contents, &*store).unwrap();
    let report = audit(&*store).unwrap();
    assert!(report.is_clean() && report.threads > 10, "{report:?}");
}

fn names(threads: &Dir) -> Vec<String> {
    let entries = threads.entries().unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_store_moves_both_ways_and_the_replaced_one_is_kept() {
    let (_temp, threads) = full_threads();
    let contents = keep_contents(&threads);
    for (number, from, to) in [
        (1, ProjectStore::Sqlite, ProjectStore::Files),
        (2, ProjectStore::Files, ProjectStore::Sqlite),
        (3, ProjectStore::Sqlite, ProjectStore::Files),
    ] {
        let moved = transfer_store(&threads, to, &mut |_| ()).unwrap();
        assert_eq!((moved.from, moved.to), (from, to));
        assert_eq!(moved.put_away, format!("replaced.d/{number}"));
        check_store(&threads, to, &contents);
        let kept = threads.open_dir(&moved.put_away).unwrap();
        compare_contents(&contents, &*open(&kept, from)).unwrap();
        let left = names(&threads);
        assert!(
            left.iter().all(|name| {
                ["locks.d", "replaced.d"].contains(&name.as_str()) || name.starts_with(to.place())
            }),
            "{left:?}"
        );
    }
}

/// Stops a transfer at a step as a panic would; returns the number of steps before.
fn stop_at(threads: &Dir, to: ProjectStore, step: usize) -> Option<TransferStep> {
    let mut steps = 0;
    let mut stopped = None;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        transfer_store(threads, to, &mut |seen| {
            if steps == step {
                stopped = Some(seen);
                panic!("stopped on purpose");
            }
            steps += 1;
        })
    }));
    assert_eq!(ended.is_err(), stopped.is_some());
    stopped
}

/// Checks that what a copy has left is named, with its size and what to do.
#[track_caller]
fn check_leftovers(threads: &Dir, from: ProjectStore, to: ProjectStore, stopped: TransferStep) {
    let left = TransferLeftovers::find(threads).unwrap();
    let (what, mend) = left.describe_interrupted().expect("it was interrupted");
    let (place, next) = match stopped {
        TransferStep::Copying(_) | TransferStep::Auditing | TransferStep::Comparing => {
            ("copy.d", "copy` begins it anew")
        }
        TransferStep::Named => (to.place(), "puts"),
        TransferStep::Chosen => (from.place(), "puts"),
        TransferStep::PutAway => ("current-store", "nothing is lost"),
    };
    assert!(what.contains(&format!(".ai/threads/{place} ")), "{what}");
    assert!(mend.contains(next), "{mend}");
    assert_eq!(
        what.contains(" bytes"),
        stopped != TransferStep::PutAway,
        "{what}"
    );
    assert!(!what.contains(" 0 bytes"), "{what}");
}

#[test]
fn one_store_counts_wherever_a_copy_is_stopped() {
    for (from, to) in [
        (ProjectStore::Sqlite, ProjectStore::Files),
        (ProjectStore::Files, ProjectStore::Sqlite),
    ] {
        let mut seen = Vec::new();
        loop {
            let (_temp, threads) = full_threads();
            if from == ProjectStore::Files {
                transfer_store(&threads, from, &mut |_| ()).unwrap();
            }
            let contents = keep_contents(&threads);
            let Some(stopped) = stop_at(&threads, to, seen.len()) else {
                break;
            };
            let counts = match stopped {
                TransferStep::Chosen | TransferStep::PutAway => to,
                _ => from,
            };
            check_store(&threads, counts, &contents);
            check_leftovers(&threads, from, to, stopped);
            // The store that counts goes on, and the next copy takes what it has then.
            let entry = CommitOp::Append {
                log: "later".to_owned(),
                partition: "t".to_owned(),
                at: 1,
                value: "one more".to_owned(),
            };
            contents
                .commit(std::slice::from_ref(&entry), false)
                .unwrap();
            open(&threads, counts).commit(&[entry], false).unwrap();
            if counts == from {
                transfer_store(&threads, to, &mut |_| ()).unwrap();
            }
            check_store(&threads, to, &contents);
            transfer_store(&threads, from, &mut |_| ()).unwrap();
            check_store(&threads, from, &contents);
            assert!(!threads.exists("current-store") && !threads.exists("copy.d"));
            assert!(!TransferLeftovers::find(&threads).unwrap().is_interrupted());
            seen.push(stopped);
        }
        assert!(
            matches!(
                seen[..],
                [
                    TransferStep::Copying(_),
                    TransferStep::Auditing,
                    TransferStep::Comparing,
                    TransferStep::Named,
                    TransferStep::Chosen,
                    TransferStep::PutAway
                ]
            ),
            "{seen:?}"
        );
    }
}

#[test]
fn a_store_that_is_used_or_wrong_is_not_moved() {
    let (_temp, threads) = full_threads();
    let contents = keep_contents(&threads);
    let same = transfer_store(&threads, ProjectStore::Sqlite, &mut |_| ());
    assert!(matches!(
        same,
        Err(TransferError::SameStore(ProjectStore::Sqlite))
    ));
    let lock = HolderLock::acquire(&threads).unwrap();
    let used = transfer_store(&threads, ProjectStore::Files, &mut |_| ());
    assert!(
        matches!(&used, Err(TransferError::InUse { holder }) if holder == lock.nonce()),
        "{used:?}"
    );
    // A process that lives copies it.
    let choice = format!("sqlite\n{}\n", lock.nonce());
    threads.write("current-store", choice).unwrap();
    let copied = transfer_store(&threads, ProjectStore::Files, &mut |_| ());
    assert!(
        matches!(
            &copied,
            Err(TransferError::Project(ProjectError::BeingCopied { copier }))
                if copier == lock.nonce()
        ),
        "{copied:?}"
    );
    drop(lock);
    check_store(&threads, ProjectStore::Sqlite, &contents);
    threads.remove_file("current-store").unwrap();
    // Nothing says which of two stores counts.
    threads.create_dir(FILES_STORE).unwrap();
    let two = transfer_store(&threads, ProjectStore::Files, &mut |_| ());
    assert!(
        matches!(two, Err(TransferError::Project(ProjectError::TwoStores))),
        "{two:?}"
    );
    threads.write("current-store", "memory\n").unwrap();
    let unknown = ProjectStore::find(&threads);
    assert!(
        matches!(unknown, Err(ProjectError::Authority(_))),
        "{unknown:?}"
    );
    let empty = tempfile::tempdir().unwrap();
    let none = transfer_store(&dir(empty.path()), ProjectStore::Files, &mut |_| ());
    assert!(matches!(none, Err(TransferError::NoStore)), "{none:?}");
}

#[test]
fn a_damaged_store_is_not_moved() {
    for (sql, in_audit) in [
        (
            "UPDATE record_head SET value = '{' WHERE name = 'idle'",
            true,
        ),
        (
            "UPDATE record_head SET value = x'00' WHERE name = 'idle'",
            false,
        ),
        (
            "DELETE FROM entry WHERE id IN (SELECT max(id) FROM entry)",
            true,
        ),
    ] {
        let (temp, connection) = ClosedStore::new().copy();
        assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}");
        drop(connection);
        let threads = dir(temp.path());
        let refused = transfer_store(&threads, ProjectStore::Files, &mut |_| ());
        match (&refused, in_audit) {
            (Err(TransferError::Findings(report)), true) => assert!(!report.is_clean()),
            (Err(TransferError::Copy(CopyError::Damaged { name, .. })), false) => {
                assert_eq!(name, "idle");
            }
            _ => panic!("{sql}: {refused:?}"),
        }
        assert_eq!(
            ProjectStore::find(&threads).unwrap(),
            Some(ProjectStore::Sqlite)
        );
        assert!(!threads.exists(FILES_STORE) && !threads.exists("current-store"));
    }
    let (_temp, threads) = full_threads();
    transfer_store(&threads, ProjectStore::Files, &mut |_| ()).unwrap();
    let torn = format!("{FILES_STORE}/000000000001.commit");
    let content = threads.read(&torn).unwrap();
    threads.write(&torn, &content[..content.len() / 2]).unwrap();
    let refused = transfer_store(&threads, ProjectStore::Sqlite, &mut |_| ());
    assert!(
        matches!(
            &refused,
            Err(TransferError::Project(ProjectError::FilesStore(_)))
        ),
        "{refused:?}"
    );
    assert_eq!(
        ProjectStore::find(&threads).unwrap(),
        Some(ProjectStore::Files)
    );
}
