//! Files that are torn, edited, missing, of a later version, or left behind.

use std::fs;
use std::path::{Path, PathBuf};
use threadkeep_storage::directory::PreopenedDirectory;
use threadkeep_storage::files::{FilesOptions, FilesStore, SegmentLayout};
use threadkeep_storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend, StorageError};

const LAYOUT: SegmentLayout = SegmentLayout {
    commits: 4,
    bytes: 1 << 20,
    snapshot_bytes: 200,
};

fn open(place: &Path) -> Result<FilesStore, StorageError> {
    let options = FilesOptions {
        writer: "w".to_owned(),
        durable: true,
        quota: None,
    };
    let directory = Box::new(PreopenedDirectory::new(place));
    FilesStore::open_with_layout(directory, options, LAYOUT, None)
}

/// A store of so many commits, each with one entry.
fn make_store(commits: u64) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path()).unwrap();
    for at in 1..=commits {
        append(&store, at).unwrap();
    }
    place
}

fn append(store: &FilesStore, at: u64) -> Result<(), StorageError> {
    let op = CommitOp::Append {
        log: "history".to_owned(),
        partition: "t".to_owned(),
        at,
        value: format!("entry {at}"),
    };
    let put = CommitOp::Put {
        key: RecordKey::new("head", "t"),
        expect: RecordExpectation::Any,
        value: at.to_string(),
    };
    store.commit(&[op, put], false).map(|_| ())
}

fn newest(place: &Path, kind: &str) -> PathBuf {
    let names = fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names
        .filter(|path| path.extension().is_some_and(|end| end == kind))
        .collect();
    names.sort();
    names.pop().unwrap()
}

fn read_all(place: &Path) -> Result<usize, StorageError> {
    let store = open(place)?;
    Ok(store.read_log("history", "t", 1, 500, false)?.len())
}

#[track_caller]
fn check_corrupt(place: &Path, words: &str) {
    match read_all(place) {
        Err(StorageError::Corrupt { message }) => {
            assert!(message.contains(words), "{message} does not say {words}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_torn_or_edited_file_is_named() {
    for kind in ["commit", "segment", "snapshot"] {
        let place = make_store(14);
        let path = newest(place.path(), kind);
        let content = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        for cut in [0, 1, content.len() / 2, content.len() - 1] {
            fs::write(&path, &content[..cut]).unwrap();
            check_corrupt(place.path(), &name);
        }
        fs::write(&path, &content).unwrap();
        assert_eq!(read_all(place.path()).unwrap(), 14, "{kind}");
        for at in [30, content.len() / 2, content.len() - 2] {
            let mut edited = content.clone();
            edited[at] ^= 1;
            fs::write(&path, &edited).unwrap();
            let read = read_all(place.path());
            assert!(
                matches!(read, Err(StorageError::Corrupt { .. })),
                "{kind} {at}: {read:?}"
            );
        }
    }
}

/// Symptom: a store without its first commit, or without those behind its last segment, was said
/// to be packed, or not to be reached: "try again", for ever. Cause: an opening took every missing
/// file for one that is packed meanwhile. Fix: where the files stay the same, it is lost.
#[test]
fn a_missing_commit_is_named() {
    let place = make_store(2);
    fs::remove_file(place.path().join("000000000000.commit")).unwrap();
    check_corrupt(place.path(), "000000000000.commit is missing");
    let place = make_store(14);
    for entry in fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "commit") {
            fs::remove_file(path).unwrap();
        }
    }
    check_corrupt(place.path(), ".commit is missing: put it back");
    let place = make_store(14);
    fs::remove_file(place.path().join("000000000013.commit")).unwrap();
    check_corrupt(place.path(), "000000000013.commit is missing");
    let place = make_store(14);
    fs::remove_file(newest(place.path(), "segment")).unwrap();
    assert!(matches!(
        read_all(place.path()),
        Err(StorageError::Corrupt { .. })
    ));
}

#[test]
fn a_file_of_a_later_version_is_not_written_over() {
    for kind in ["commit", "snapshot"] {
        let place = make_store(14);
        let path = newest(place.path(), kind);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen(" 1 ", " 2 ", 1)).unwrap();
        match read_all(place.path()) {
            Err(StorageError::Other { code, message }) => {
                assert_eq!(code, "newer-format");
                assert!(message.contains("use a newer threadkeep"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_a_writer_left_behind_is_removed_and_other_files_stay() {
    let place = make_store(2);
    let left = place.path().join("000000000001-gone-7.new");
    let other = place.path().join("notes.txt");
    fs::write(&left, "half a comm").unwrap();
    fs::write(&other, "mine").unwrap();
    let store = open(place.path()).unwrap();
    for at in 3..=14 {
        append(&store, at).unwrap();
    }
    assert!(!left.exists() && other.exists());
    assert_eq!(read_all(place.path()).unwrap(), 14);
}

/// Symptom: the native program and the bundle waited for ever. Cause: a pipe of the name of the
/// next commit was opened, which waits for a writer. Fix: no opening of a directory waits.
#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_commit_is_refused() {
    let place = make_store(2);
    let pipe = place.path().join("000000000003.commit");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    assert!(read_all(place.path()).is_err());
    #[cfg(feature = "cap-std")]
    {
        use threadkeep_storage::directory::{FileDirectory, GrantedDirectory};
        let dir = cap_std::fs::Dir::open_ambient_dir(place.path(), cap_std::ambient_authority());
        let granted = GrantedDirectory::new(dir.unwrap());
        let mut opened = granted.open("000000000003.commit");
        let read = opened.as_mut().map(|file| file.read_at(0, 10));
        assert!(!matches!(read, Ok(Ok(bytes)) if !bytes.is_empty()));
    }
}

#[test]
fn a_directory_that_is_gone_or_cannot_be_written_says_so() {
    let place = make_store(3);
    let store = open(place.path()).unwrap();
    let path = place.path().to_owned();
    drop(place);
    let failed = append(&store, 4);
    assert!(
        matches!(failed, Err(StorageError::Unavailable { .. })),
        "{failed:?}"
    );
    assert!(matches!(open(&path), Err(StorageError::Unavailable { .. })));
}

#[test]
fn a_store_that_was_restored_to_an_earlier_time_is_read_as_it_is_now() {
    let place = make_store(14);
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(place.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let store = open(place.path()).unwrap();
    for at in 15..=40 {
        append(&store, at).unwrap();
    }
    for entry in fs::read_dir(place.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for entry in fs::read_dir(copy.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.path().join(entry.file_name())).unwrap();
    }
    let entries = store.read_log("history", "t", 1, 500, false).unwrap();
    assert_eq!(entries.len(), 14);
    append(&store, 15).unwrap();
    assert_eq!(read_all(place.path()).unwrap(), 15);
}
