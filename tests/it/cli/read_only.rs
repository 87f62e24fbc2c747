//! Read-only projects can be read: another user's project, a backup, a read-only mount.
//!
//! Symptom: `list` in such a project ended with an error. Cause: each command took a lock file, and
//! a log of the store needs memory beside it. Fix: a command that only reads creates nothing there,
//! and a log without its memory is read from a copy.

use super::fixture::CliProject;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use threadkeep_tests::binary::{self, ProcessOutput};

/// A user who is neither root nor the owner.
const NOBODY: u32 = 65_534;

/// A user bound by permissions, with native code of its own: the code of another user is never
/// used.
struct UnprivilegedReader {
    uid: Option<u32>,
    cache: TempDir,
}

impl UnprivilegedReader {
    /// Creates the reader with a copy of the native code that the project's first command made.
    fn for_project(project: &CliProject) -> Self {
        let root = std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
        let reader = Self {
            uid: root.then_some(NOBODY),
            cache: TempDir::new().expect("a temporary directory"),
        };
        let command = project.command(&[]);
        let made = command
            .get_envs()
            .find(|(name, _)| *name == "THREADKEEP_CACHE");
        let made = made.and_then(|(_, value)| value).expect("it is set");
        for entry in std::fs::read_dir(made).unwrap().flatten() {
            let own = reader.cache.path().join(entry.file_name());
            // Other tests create and remove files there.
            if std::fs::copy(entry.path(), &own).is_ok() {
                reader.make_reader_own(&own);
            }
        }
        reader.make_reader_own(reader.cache.path());
        reader
    }

    fn make_reader_own(&self, path: &Path) {
        if self.uid.is_some() {
            chown(path, self.uid, None).expect("root may");
        }
    }

    fn run(&self, project: &CliProject, arguments: &[&str]) -> ProcessOutput {
        let mut command = project.command(arguments);
        command.env("THREADKEEP_CACHE", self.cache.path());
        if let Some(uid) = self.uid {
            command.uid(uid);
        }
        binary::run_to_end(command)
    }

    fn json(&self, project: &CliProject, arguments: &[&str]) -> Value {
        self.run(project, &[arguments, &["--json"]].concat()).json()
    }
}

/// Every file and directory below `path`, without links.
fn files_below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_path_buf()];
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            found.extend(files_below(&entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

/// Removes all write permissions and grants read permissions to all; or restores them.
fn set_writable(project: &CliProject, writable: bool) {
    for path in files_below(project.path()) {
        let mode = match (path.is_dir(), writable) {
            (true, true) => 0o755,
            (true, false) => 0o555,
            (false, true) => 0o644,
            (false, false) => 0o444,
        };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Checks the answer of each command that only reads.
fn check(reader: &UnprivilegedReader, project: &CliProject, what: &str, threads: usize) {
    let before = files_below(project.path());
    let list = reader.json(project, &["list"]);
    let listed = list["threads"].as_array().map(Vec::len);
    assert_eq!(listed, Some(threads), "{what}: {list}");
    for arguments in [
        &["show", "one"][..],
        &["transcript", "one"],
        &["tree", "one"],
        &["budget", "show", "one"],
        &["audit"],
    ] {
        let answer = reader.json(project, arguments);
        assert_eq!(answer["exit"], 0, "{what}: {arguments:?}: {answer}");
    }
    let audit = reader.json(project, &["audit"]);
    let seen = (&audit["threads"], &audit["documents_unread"]);
    assert_eq!(seen, (&json!(threads), &json!(0)), "{what}: {audit}");
    let doctor = reader.run(project, &["doctor"]);
    for words in [
        "1 completed",
        "cannot be written",
        "what is kept there can be read",
    ] {
        assert!(
            doctor.out.contains(words),
            "{what}: {words}: {}",
            doctor.out
        );
    }
    assert!(
        !doctor.out.contains("the store cannot be used"),
        "{what}: {}",
        doctor.out
    );
    assert_eq!(
        files_below(project.path()),
        before,
        "{what}: nothing is made"
    );
}

#[test]
fn a_project_that_may_not_be_written_is_read() {
    let project = CliProject::new();
    project.finish_thread("one");
    let reader = UnprivilegedReader::for_project(&project);
    set_writable(&project, false);
    check(&reader, &project, "a project at rest", 1);
    let written = reader.json(&project, &["title", "one", "A title"]);
    assert_eq!(written["exit"], 1, "{written}");
    let hint = written["error"]["hint"].to_string();
    assert!(hint.contains("what only reads works"), "{written}");
    set_writable(&project, true);
}

/// A store of plain files is read where it is: reading it makes nothing.
#[test]
fn a_project_of_plain_files_that_may_not_be_written_is_read() {
    let project = CliProject::new();
    project.finish_thread("one");
    assert_eq!(project.json(&["copy", "--to", "files"])["exit"], 0);
    let reader = UnprivilegedReader::for_project(&project);
    set_writable(&project, false);
    check(&reader, &project, "a project of plain files", 1);
    let written = reader.json(&project, &["title", "one", "A title"]);
    assert_eq!(written["exit"], 1, "{written}");
    let hint = written["error"]["hint"].to_string();
    assert!(hint.contains("what only reads works"), "{written}");
    set_writable(&project, true);
}

/// A backup made during writes: the store, and its log without the memory that processes share.
#[test]
fn a_backup_with_its_log_is_read_from_a_copy() {
    let (project, backup) = (CliProject::new(), CliProject::new());
    project.finish_thread("one");
    let reader = UnprivilegedReader::for_project(&project);
    let running = project.start_unending("two");
    for name in ["registry.db", "registry.db-wal"] {
        let [from, to] = [&project, &backup].map(|at| at.path().join(".ai/threads").join(name));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&from, &to).unwrap();
    }
    running.kill();
    running.wait_for_end();
    set_writable(&backup, false);
    check(&reader, &backup, "a backup", 2);
    let said = reader.run(&backup, &["list"]).err;
    assert_eq!(
        said.matches("it is read from a copy in").count(),
        1,
        "{said}"
    );
    set_writable(&backup, true);
    assert_eq!(
        backup.threads(),
        2,
        "where it may be written it is read in place"
    );
}

/// Documents that the reader may not read are left out, and the command says so once.
#[test]
fn documents_that_may_not_be_read_are_left_out() {
    let project = CliProject::new();
    project.finish_thread("one");
    project.finish_thread("two");
    let reader = UnprivilegedReader::for_project(&project);
    set_writable(&project, false);
    let theirs = project.path().join(".ai/threads/two");
    std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o000)).unwrap();
    let audit = reader.json(&project, &["audit"]);
    let seen = (
        &audit["documents_unread"],
        &audit["findings"],
        &audit["exit"],
    );
    assert_eq!(seen, (&json!(1), &json!([]), &json!(0)), "{audit}");
    let said = reader.run(&project, &["audit"]).err;
    assert_eq!(said.matches("were left out").count(), 1, "{said}");
    std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o755)).unwrap();
    set_writable(&project, true);
}

/// Symptom: of a store that this user may not read, `doctor` said to keep a copy before anything
/// else is tried. Fix: it says who owns it and what its mode lacks.
#[test]
fn doctor_says_whose_a_store_is_that_may_not_be_read() {
    let project = CliProject::new();
    project.finish_thread("one");
    let reader = UnprivilegedReader::for_project(&project);
    let store = project.path().join(".ai/threads/registry.db");
    set_writable(&project, false);
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o000)).unwrap();
    let owner = store.metadata().unwrap().uid();
    let doctor = reader.run(&project, &["doctor"]);
    let said =
        format!("registry.db belongs to the user with the number {owner} and has the mode 0000");
    for said in [said.as_str(), "have its owner or root let you"] {
        assert!(doctor.out.contains(said), "{said:?} in {}", doctor.out);
    }
    assert!(!doctor.out.contains("keep a copy"), "{}", doctor.out);
    set_writable(&project, true);
}
