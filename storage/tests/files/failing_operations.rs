//! A history in which each operation of the directory fails once, at every place: by a kill, by a
//! loss of power, or by an error of the system such as a full disk. Whatever was acknowledged is
//! there afterwards, once; nothing that was refused is.

use super::failing_directory::{FailingDirectory, PlannedFailure};
use super::random_numbers::RandomNumbers;
use super::simulated_disk::SimulatedDisk;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use threadkeep_storage::directory::FileDirectory;
use threadkeep_storage::files::{FilesOptions, FilesStore, SegmentLayout};
use threadkeep_storage::{
    CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend, StorageError,
    StorageQuota,
};

const LAYOUT: SegmentLayout = SegmentLayout {
    commits: 3,
    bytes: 1 << 20,
    snapshot_bytes: 200,
};
/// Commits of the history: four segments, and snapshots among which old ones are removed.
const COMMITS: u64 = 13;
/// More operations than the history takes.
const OPERATIONS_MAX: u64 = 2_000;

fn open_in(
    directory: Box<dyn FileDirectory>,
    writer: &str,
    quota: Option<StorageQuota>,
) -> Result<FilesStore, StorageError> {
    let options = FilesOptions {
        writer: writer.to_owned(),
        durable: true,
        quota,
    };
    FilesStore::open_with_layout(directory, options, LAYOUT, None)
}

/// Appends an entry with the head that guards it.
fn append(store: &FilesStore, value: &str) -> Result<(), StorageError> {
    let head = RecordKey::new("head", "t");
    let found = store.get(std::slice::from_ref(&head))?;
    let version = found.first().map_or(0, |record| record.version);
    let expect = match version {
        0 => RecordExpectation::Absent,
        version => RecordExpectation::Version(version),
    };
    let put = CommitOp::Put {
        key: head,
        expect,
        value: value.to_owned(),
    };
    let entry = CommitOp::Append {
        log: "history".to_owned(),
        partition: "t".to_owned(),
        at: version + 1,
        value: value.to_owned(),
    };
    match store.commit(&[put, entry], false)? {
        CommitOutcome::Committed => Ok(()),
        CommitOutcome::Conflict => panic!("nobody else writes"),
    }
}

/// The answers that a writer was given.
#[derive(Debug, Default)]
struct GivenAnswers {
    acknowledged: Vec<String>,
    refused: Vec<String>,
    /// Of these nobody knows.
    unknown: Vec<String>,
}

/// Opens a store and appends to it; goes on after each error, as a driver does.
fn write_history(directory: Box<dyn FileDirectory>) -> GivenAnswers {
    let mut answers = GivenAnswers::default();
    let mut opened = open_in(directory, "first", None);
    for n in 0..COMMITS {
        let value = format!("value {n}");
        let told = match &mut opened {
            Ok(store) => append(store, &value),
            Err(error) => Err(error.clone()),
        };
        match told {
            Ok(()) => answers.acknowledged.push(value),
            Err(StorageError::OutcomeUnknown { .. }) => answers.unknown.push(value),
            Err(StorageError::Unavailable { .. } | StorageError::Other { .. }) => {
                answers.refused.push(value);
            }
            Err(error) => panic!("{value}: {error}"),
        }
    }
    answers
}

fn read_values(store: &FilesStore) -> Vec<String> {
    let entries = store.read_log("history", "t", 1, 500, false).unwrap();
    entries.into_iter().map(|entry| entry.value).collect()
}

/// Opens the disk again and compares it with what the writer was told. `killed` is true if a commit
/// that failed may be there, because its writer lived no longer to find out.
fn check_disk(disk: &Arc<SimulatedDisk>, answers: &GivenAnswers, killed: bool, place: &str) {
    let store = open_in(disk.directory(0), "second", None);
    let store = store.unwrap_or_else(|error| panic!("{place}: {error}"));
    let values = read_values(&store);
    for value in &answers.acknowledged {
        let times = values.iter().filter(|kept| *kept == value).count();
        assert_eq!(times, 1, "{place}: {value} was acknowledged: {values:?}");
    }
    for value in &answers.refused {
        assert!(
            killed || !values.contains(value),
            "{place}: {value} was refused: {values:?}"
        );
    }
    let known = answers.acknowledged.len() + answers.unknown.len();
    let most = known + if killed { 1 } else { 0 };
    assert!(values.len() <= most, "{place}: {values:?}, {answers:?}");
    // The store goes on, and packs what was left.
    for n in 0..8 {
        append(&store, &format!("later {n}")).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    assert_eq!(store.packing_failure(), None, "{place}");
    drop(store);
    let again = open_in(disk.directory(0), "third", None).unwrap();
    assert_eq!(read_values(&again).len(), values.len() + 8, "{place}");
    let names = disk.directory(0).list().unwrap();
    let left = names.iter().filter(|name| name.ends_with(".new")).count();
    assert!(left <= 1, "{place}: {names:?}");
}

/// Runs the history with the failure at each operation in turn; returns how many there are.
fn fail_everywhere(
    plan: impl Fn(u64) -> PlannedFailure,
    after: impl Fn(&Arc<SimulatedDisk>, u64),
    killed: bool,
) -> u64 {
    for at in 0..OPERATIONS_MAX {
        let disk = SimulatedDisk::new();
        let (directory, counts) = FailingDirectory::new(disk.directory(0), plan(at));
        let answers = write_history(directory);
        after(&disk, at);
        check_disk(&disk, &answers, killed, &format!("{:?}", plan(at)));
        if counts.operations.load(Ordering::Relaxed) <= at {
            assert_eq!(answers.acknowledged.len() as u64, COMMITS);
            return at;
        }
    }
    panic!("the history has more operations than expected");
}

#[test]
fn a_kill_at_any_operation_loses_nothing_that_was_acknowledged() {
    let count = fail_everywhere(PlannedFailure::KillAt, |_, _| (), true);
    let after = fail_everywhere(PlannedFailure::KillAfter, |_, _| (), true);
    assert!(
        count > 200 && count == after,
        "{count} and {after} operations"
    );
    println!("killed at each of {count} operations");
}

#[test]
fn a_loss_of_power_at_any_operation_loses_nothing_that_was_acknowledged() {
    for seed in 0..6 {
        let lose = |disk: &Arc<SimulatedDisk>, at: u64| {
            let mut random = RandomNumbers::new(seed * 10_000 + at);
            disk.state.lock().unwrap().lose_power(&mut random);
        };
        fail_everywhere(PlannedFailure::KillAt, lose, true);
        fail_everywhere(PlannedFailure::KillAfter, lose, true);
    }
}

/// An error of one operation refuses at most the commit that met it, or leaves its outcome unknown;
/// the same opening goes on.
#[test]
fn an_error_of_any_operation_is_told_as_it_is() {
    for kind in [
        ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded,
        ErrorKind::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem,
        ErrorKind::Interrupted,
        ErrorKind::Other,
    ] {
        fail_everywhere(|at| PlannedFailure::ErrorAt(at, kind), |_, _| (), false);
    }
}

/// The error of opening, or of one commit, on a file system on which these operations fail.
fn refuse(names: &'static [&'static str], kind: ErrorKind, made: bool) -> StorageError {
    let disk = SimulatedDisk::new();
    if made {
        append(&open_in(disk.directory(0), "first", None).unwrap(), "one").unwrap();
    }
    let failure = PlannedFailure::ErrorAlways(names, kind);
    let (directory, _) = FailingDirectory::new(disk.directory(0), failure);
    match open_in(directory, "second", None) {
        Err(error) => error,
        Ok(store) => {
            assert_eq!(read_values(&store), ["one"], "it can be read");
            append(&store, "two").unwrap_err()
        }
    }
}

#[test]
fn a_file_system_that_cannot_hold_a_store_is_named() {
    let code = |error: &StorageError| match error {
        StorageError::Other { code, .. } => *code,
        StorageError::Unavailable { .. } => "unavailable",
        _ => "another",
    };
    let cases: [(&'static [&'static str], ErrorKind, bool, &str, &str); 7] = [
        (
            &["link"],
            ErrorKind::Unsupported,
            false,
            "no-hard-links",
            "use another directory",
        ),
        (
            &["link"],
            ErrorKind::PermissionDenied,
            false,
            "no-hard-links",
            "use another directory",
        ),
        (
            &["link"],
            ErrorKind::Unsupported,
            true,
            "no-hard-links",
            "use another directory",
        ),
        (
            &["create"],
            ErrorKind::ReadOnlyFilesystem,
            false,
            "read-only",
            "cannot be written",
        ),
        (
            &["create"],
            ErrorKind::PermissionDenied,
            true,
            "read-only",
            "cannot be written",
        ),
        (
            &["write"],
            ErrorKind::StorageFull,
            true,
            "unavailable",
            "the disk is full",
        ),
        (
            &["list"],
            ErrorKind::NotFound,
            false,
            "unavailable",
            "the directory of the store",
        ),
    ];
    for (names, kind, made, expected, words) in cases {
        let error = refuse(names, kind, made);
        assert_eq!(code(&error), expected, "{names:?} {kind:?}: {error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_full_quota_lets_a_closing_commit_pass_and_one_that_shrinks() {
    let disk = SimulatedDisk::new();
    let quota = Some(StorageQuota {
        limit_bytes: 1_000,
        closing_margin_bytes: 500,
    });
    let store = open_in(disk.directory(0), "first", quota).unwrap();
    let put = |name: &str, bytes: usize| CommitOp::Put {
        key: RecordKey::new("head", name),
        expect: RecordExpectation::Any,
        value: "x".repeat(bytes),
    };
    store.commit(&[put("a", 900)], false).unwrap();
    let full = store.commit(&[put("b", 100)], false);
    let expected = StorageError::QuotaExceeded {
        limit: 1_000,
        used: 900 + 1 + 64,
    };
    assert_eq!(full, Err(expected));
    store.commit(&[put("b", 100)], true).unwrap();
    store.commit(&[put("a", 800)], false).unwrap();
    drop(store);
    // The next opening counts the same bytes.
    let store = open_in(disk.directory(0), "second", quota).unwrap();
    assert_eq!(store.usage().used_bytes, 800 + 1 + 64 + 100 + 1 + 64);
    assert!(store.commit(&[put("c", 1)], false).is_err());
}
