//! File modes: a project's data are readable by its owner alone, and a policy over it must not be
//! writable by others.

use super::fixture::GuardedProject;
use crate::component::project::engine;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use threadkeep::authority::ProjectDir;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep_tests::binary;

/// Runs the command line in a project, by a shell that sets the umask first.
fn run_with_mask(world: &GuardedProject, mask: &str, arguments: &[&str]) -> Output {
    let script = format!("umask {mask} && exec \"$0\" \"$@\"");
    let clean = binary::command(&world.path);
    let variables = clean
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(clean.get_program())
        .args(arguments)
        .current_dir(&world.path)
        .env_clear()
        .envs(variables)
        .output()
        .unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path)
        .unwrap()
        .permissions()
        .mode()
        & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Adds a directory and everything below it to `found`.
fn walk(path: PathBuf, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(&path).unwrap();
        entries.for_each(|entry| walk(entry.unwrap().path(), found));
    }
    found.push(path);
}

/// Symptom: under an ordinary umask every user of a machine could read all threads and hold their
/// locks. Cause: files had the mode that the umask left. Fix: 0700 and 0600, under any umask. Kind:
/// store, log and memory of the store, lock, documents, usage log, and their directories, under
/// umasks that remove and that grant permissions.
#[test]
fn files_of_threads_are_private_whatever_the_mask_is() {
    for mask in ["000", "022", "177"] {
        let world = GuardedProject::new();
        let output = run_with_mask(&world, mask, &["run", "x", "--id", "a/b"]);
        assert!(output.status.success(), "{mask}: {output:?}");
        // A store that is still open has a log and its memory.
        let open = world.open(true).unwrap();
        let mut found = Vec::new();
        walk(world.path.join(".ai/threads"), &mut found);
        for name in ["registry.db", "registry.db.lock", "a/b/thread.json"] {
            let path = world.path.join(".ai/threads").join(name);
            assert!(found.contains(&path), "{mask}: {name} in {found:?}");
        }
        for path in found {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), expected, "{mask}: {}", path.display());
        }
        drop(open);
    }
}

/// Directories of earlier versions are closed to others by the next opening that writes.
#[test]
fn an_older_directory_is_closed_to_others() {
    let world = GuardedProject::new();
    let threads = world.path.join(".ai/threads");
    std::fs::create_dir(&threads).unwrap();
    for (before, after) in [(0o755, 0o700), (0o777, 0o700), (0o700, 0o700)] {
        set_mode(&threads, before);
        let options = ProjectOptions::new(Policy::preset(PolicyPreset::Local));
        let project = ProjectDir::from_dir(world.dir());
        drop(OpenProject::open(engine(), &project, options).unwrap());
        assert_eq!(mode(&threads), after, "{before:o}");
    }
}

/// Symptom: a store of mode 0666 and locks of mode 0755 kept them for ever. Cause: only the
/// directory around them was closed. Fix: what writes closes each. The kind: the store, its log,
/// its lock and the directory of locks.
#[test]
fn older_files_of_the_store_are_closed_to_others() {
    let world = GuardedProject::new();
    let threads = world.path.join(".ai/threads");
    drop(world.open(true).unwrap());
    for name in ["registry.db", "registry.db.lock"] {
        set_mode(&threads.join(name), 0o666);
    }
    set_mode(&threads.join("locks.d"), 0o755);
    let output = run_with_mask(&world, "022", &["create", "--id", "c"]);
    assert!(output.status.success(), "{output:?}");
    let mut found = Vec::new();
    walk(threads, &mut found);
    for path in found {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

/// Symptom: a policy that others could write was obeyed. Cause: its mode was not checked. Fix: it
/// is refused, with its name. Kind: the policy and its book, writable by the group and by all.
#[test]
fn a_policy_or_book_that_others_can_write_is_refused() {
    let world = GuardedProject::new();
    let policy = world.path.with_file_name("policy.yaml");
    let book = world.path.with_file_name("used.json");
    let text = "preset: local\nbook: used.json\n";
    for (policy_mode, book_mode, named) in [
        (0o600, 0o600, None),
        (0o644, 0o644, None),
        (0o664, 0o600, Some("policy.yaml")),
        (0o602, 0o600, Some("policy.yaml")),
        (0o600, 0o664, Some("used.json")),
        (0o600, 0o602, Some("used.json")),
    ] {
        std::fs::write(&policy, text).unwrap();
        std::fs::write(&book, "{}").unwrap();
        set_mode(&policy, policy_mode);
        set_mode(&book, book_mode);
        let path = policy.to_str().unwrap();
        let output = run_with_mask(&world, "022", &["run", "x", "--policy", path]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.success(),
            named.is_none(),
            "{policy_mode:o} {book_mode:o}: {said}"
        );
        if let Some(named) = named {
            let told = said.contains(named) && said.contains("others may write it");
            assert!(told, "{policy_mode:o} {book_mode:o}: {said}");
        }
    }
}
