//! SQLite's locks on the files of a store are POSIX locks: a process loses those that it has on a
//! file as soon as it closes any descriptor of that file.

use super::damaged_files::set_mode;
use super::{FILE, commit, get, open, put_op};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Number of POSIX locks that this process has on a file, as the system tells of each of its
/// descriptors: `lock: 1: POSIX  ADVISORY  READ 4711 fe:00:1048 128 128`. The list of all locks,
/// `/proc/locks`, is no snapshot: while other tests lock, a reading may miss one.
fn own_lock_count(path: &Path) -> usize {
    let file = std::fs::metadata(path).unwrap();
    let mut counts = vec![];
    for descriptor in std::fs::read_dir("/proc/self/fd").unwrap() {
        let descriptor = descriptor.unwrap();
        // Another test's may be closed by now.
        let Ok(open) = std::fs::metadata(descriptor.path()) else {
            continue;
        };
        if (open.dev(), open.ino()) != (file.dev(), file.ino()) {
            continue;
        }
        let details = Path::new("/proc/self/fdinfo").join(descriptor.file_name());
        let details = std::fs::read_to_string(details).unwrap_or_default();
        let locks = details.lines().filter(|line| line.starts_with("lock:"));
        counts.push(locks.filter(|line| line.contains(" POSIX ")).count());
    }
    // A lock of the process is told of each of its descriptors of the file.
    counts.into_iter().max().unwrap_or_default()
}

/// Symptom: the process died of SIGBUS while it and another process opened an old store at once.
/// Cause: an opening took other users' rights from the files through descriptors, and their closing
/// released the locks of the connections that were open: the other process truncated the shared
/// memory. Fix: modes are changed, and files made, without opening them. Kind: each file of a
/// store.
#[test]
fn an_opening_that_closes_files_to_others_releases_no_lock() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path();
    let store = open(path);
    commit(&store, &[put_op("a", "1")]);
    let files = ["", "-wal", "-shm"].map(|suffix| path.join(format!("{FILE}{suffix}")));
    let locks = || [&files[0], &files[2]].map(|file| own_lock_count(file));
    let before = locks();
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    files.iter().for_each(|file| set_mode(file, 0o666));
    let again = open(path);
    for file in &files {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let after = locks();
    let is_kept = before.iter().zip(&after).all(|(had, has)| has >= had);
    assert!(is_kept, "{after:?} of {before:?}");
    super::lazy::run_in_child("open", path, None);
    assert_eq!(get(&store, "a"), Ok(Some("1".to_owned())));
    commit(&again, &[put_op("a", "2")]);
    assert_eq!(get(&store, "a"), Ok(Some("2".to_owned())));
}
