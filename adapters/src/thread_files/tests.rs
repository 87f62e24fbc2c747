//! The same files through a directory of cap-std and through one of std alone, as a host under WASI
//! has it.

use super::*;
use cap_std::fs::Dir;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use threadkeep_storage::directory::{DirectoryTree, GrantedDirectory, PreopenedDirectory};

/// Writes each kind of file, some of them twice.
fn write_all(threads: &dyn DirectoryTree) {
    let opened = DocumentDirectory::open(threads, "a/b", MissingDirectory::Make).unwrap();
    let place = Arc::new(opened.unwrap());
    write_thread_file(&place, b"{\"thread_id\":\"a/b\"}").unwrap();
    write_thread_file(&place, b"{\"thread_id\":\"a/b\",\"version\":1}").unwrap();
    let transcript = TranscriptFile::new_markdown(&place);
    let first = "one\n<!-- version 1, 4 bytes -->\n\n";
    let mut replacement = transcript.begin_replacement().unwrap();
    replacement.write(first.as_bytes()).unwrap();
    replacement.commit().unwrap();
    let open = transcript.open().unwrap().unwrap();
    assert_eq!(open.version(), 1);
    let second = format!("{first}two\n<!-- version 2, 4 bytes -->\n\n");
    let (mut append, rest) = open.continue_after(&second).unwrap();
    append.write(&rest).unwrap();
    append.finish().unwrap();
    let mut comparison = transcript.begin_comparison().unwrap().ok().unwrap();
    assert_eq!(comparison.compare_piece(Some(&second), 0).unwrap(), None);
    let whole = comparison.compare_piece(None, 2).unwrap();
    assert_eq!(whole, Some(DocumentState::Current));
    for (version, has_ended) in [(1, false), (2, true)] {
        let save = CheckpointSave {
            place: Arc::clone(&place),
            version,
            text: format!("{{\"history_version\": {version}}}"),
            has_ended,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            settings: CheckpointSettings::parse(None).unwrap(),
        };
        let problem = save.perform().unwrap();
        assert!(problem.is_none(), "{problem:?}");
    }
    append_usage_line(threads, b"{\"turns\":1}\n").unwrap();
    append_usage_line(threads, b"{\"turns\":2}\n").unwrap();
    assert_eq!(usage_file_bytes(threads).unwrap(), Some(24));
}

/// All files below a directory, with their contents.
fn read_all(dir: &Dir, path: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in dir.entries().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let whole = format!("{path}/{name}");
        match dir.is_dir(&name) {
            true => read_all(&dir.open_dir(&name).unwrap(), &whole, found),
            false => found.push((whole, dir.read(&name).unwrap())),
        }
    }
    found.sort();
}

#[test]
fn files_are_the_same_through_either_directory() {
    let written = [true, false].map(|granted| {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        match granted {
            true => write_all(&GrantedDirectory::new(dir.try_clone().unwrap())),
            false => write_all(&PreopenedDirectory::new(temporary.path())),
        }
        let mut found = Vec::new();
        read_all(&dir, "", &mut found);
        found
    });
    assert_eq!(written[0], written[1]);
    let names: Vec<&str> = written[0].iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"/a/b/archive.d/state.json"), "{names:?}");
    assert!(names.contains(&"/usage.jsonl"), "{names:?}");
}
