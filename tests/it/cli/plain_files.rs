//! `--store files` on the command line: the store that is there, one of another kind, and files
//! that are damaged, of a later version, or not its own.

use super::fixture::CliProject;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A project whose only thread is in plain files.
fn make_project() -> CliProject {
    let project = CliProject::new();
    let input = ["--input", "file=notes.txt", "--id", "one"];
    let run = [&["run", "describe", "--store", "files"], &input[..]].concat();
    assert_eq!(project.json(&run)["exit"], 0);
    project
}

/// Names and contents of the files of the store.
fn read_store(project: &CliProject) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(project.path().join(".ai/threads/store.d")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[track_caller]
fn check_error(answer: &Value, code: &str, words: &[&str]) {
    assert_eq!(
        (&answer["exit"], &answer["error"]["code"]),
        (&json!(1), &json!(code)),
        "{answer}"
    );
    let told = answer["error"].to_string();
    for words in words {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn the_store_that_is_there_is_used_and_another_is_refused() {
    let project = make_project();
    assert!(!project.exists(".ai/threads/registry.db"));
    assert_eq!(project.threads(), 1);
    assert_eq!(project.status("one"), "completed");
    let other = project.json(&["list", "--store", "sqlite"]);
    check_error(&other, "other-store", &["store.d", "leave out --store"]);
    assert!(!project.exists(".ai/threads/registry.db"));
    let doctor = project.run(&["doctor"]);
    for words in ["files", "commits that are not packed"] {
        assert!(doctor.out.contains(words), "{words}: {}", doctor.out);
    }
    let project = CliProject::new();
    project.finish_thread("one");
    let other = project.json(&["list", "--store", "files"]);
    check_error(&other, "other-store", &["registry.db", "leave out --store"]);
    assert!(!project.exists(".ai/threads/store.d"));
}

/// Damages a file of the store, and checks what commands say; nothing is written.
#[track_caller]
fn check_damage(damage: impl Fn(&CliProject), words: &[&str]) {
    let project = make_project();
    damage(&project);
    let before = read_store(&project);
    for arguments in [&["list"][..], &["create"], &["audit"], &["show", "one"]] {
        check_error(&project.json(arguments), "store", words);
    }
    let doctor = project.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.out);
    for words in words {
        assert!(doctor.out.contains(words), "{words}: {}", doctor.out);
    }
    assert_eq!(read_store(&project), before);
}

#[test]
fn a_damaged_file_is_named_and_nothing_is_written() {
    let file = |project: &CliProject, number: u64| {
        let name = format!(".ai/threads/store.d/{number:012}.commit");
        project.path().join(name)
    };
    let cut = |project: &CliProject| {
        let content = std::fs::read(file(project, 3)).unwrap();
        std::fs::write(file(project, 3), &content[..content.len() / 2]).unwrap();
    };
    check_damage(cut, &["000000000003.commit is torn"]);
    let edit = |project: &CliProject| {
        let content = std::fs::read_to_string(file(project, 2)).unwrap();
        std::fs::write(file(project, 2), content.replacen("running", "RUNNING", 1)).unwrap();
    };
    check_damage(edit, &["000000000002.commit", "edited"]);
    let remove = |project: &CliProject| std::fs::remove_file(file(project, 2)).unwrap();
    check_damage(remove, &["000000000002.commit is missing", "from a backup"]);
    let later = |project: &CliProject| {
        let content = std::fs::read_to_string(file(project, 1)).unwrap();
        std::fs::write(file(project, 1), content.replacen(" 1 ", " 2 ", 1)).unwrap();
    };
    check_damage(later, &["has format 2", "use a newer threadkeep"]);
}

#[test]
fn files_that_are_not_its_own_are_left_alone() {
    let project = make_project();
    for name in ["notes.txt", "000000000001-gone-7.new"] {
        project.write(&format!(".ai/threads/store.d/{name}"), "half a comm");
    }
    project.json(&["create", "--id", "two"]);
    assert_eq!(project.threads(), 2);
    assert_eq!(project.json(&["audit"])["exit"], 0);
    assert!(project.exists(".ai/threads/store.d/notes.txt"));
    // A file, or a link, in the place of the directory.
    let project = CliProject::new();
    project.write(".ai/threads/store.d", "no directory");
    let listed = project.json(&["list"]);
    assert_eq!(listed["exit"], 1, "{listed}");
    assert!(listed["error"].to_string().contains("store.d"), "{listed}");
    #[cfg(unix)]
    {
        let (project, outside) = (CliProject::new(), CliProject::empty());
        project.write(".ai/threads/notes.txt", "");
        let link = project.path().join(".ai/threads/store.d");
        std::os::unix::fs::symlink(outside.path(), link).unwrap();
        let created = project.json(&["create"]);
        assert_eq!(created["exit"], 1, "{created}");
        let told = created["error"].to_string();
        assert!(told.contains("store.d is a symbolic link"), "{told}");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
