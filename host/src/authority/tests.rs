//! Tests: contents and refusals of a project directory, and detection of dead processes.

use super::*;
use tempfile::TempDir;

fn temp_project() -> (TempDir, ProjectDir) {
    let temp = TempDir::new().expect("a temporary directory");
    let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
    (temp, project)
}

/// The name of the variant.
fn variant_name<T>(result: Result<T, AuthorityError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(AuthorityError::Missing { .. }) => "missing",
        Err(AuthorityError::Link { .. }) => "link",
        Err(AuthorityError::HardLink { .. }) => "hard link",
        Err(AuthorityError::Leaves { .. }) => "leaves",
        Err(AuthorityError::NotDirectory { .. }) => "not a directory",
        Err(AuthorityError::NotRegular { .. }) => "not regular",
        Err(AuthorityError::Replaced { .. }) => "replaced",
        Err(AuthorityError::TooLarge { .. }) => "too large",
        Err(AuthorityError::Io { .. }) => "io",
    }
}

#[test]
fn project_directories_are_made_once() {
    let (temp, project) = temp_project();
    assert!(project.ai_dir().expect("readable").is_none());
    project.threads_dir_or_create().expect("made");
    project.threads_dir_or_create().expect("opened again");
    assert!(temp.path().join(".ai/threads").is_dir());
    assert!(project.ai_dir().expect("readable").is_some());
    assert_eq!(
        variant_name(ProjectDir::open_ambient(&temp.path().join("none"))),
        "missing"
    );
    std::fs::write(temp.path().join("file"), "x").expect("written");
    assert_eq!(
        variant_name(ProjectDir::open_ambient(&temp.path().join("file"))),
        "not a directory"
    );
}

#[cfg(unix)]
#[test]
fn links_in_place_of_directories_are_refused() {
    use std::os::unix::fs::symlink;
    let elsewhere = TempDir::new().expect("a temporary directory");
    let (temp, inside) = temp_project();
    symlink(elsewhere.path(), temp.path().join(AI_DIR)).expect("linked");
    assert_eq!(variant_name(inside.ai_dir()), "link");
    assert_eq!(variant_name(inside.ai_dir_or_create()), "link");
    assert_eq!(variant_name(inside.threads_dir_or_create()), "link");

    let (temp, inside) = temp_project();
    std::fs::create_dir(temp.path().join("real")).expect("made");
    symlink("real", temp.path().join(AI_DIR)).expect("linked");
    assert_eq!(
        variant_name(inside.ai_dir()),
        "link",
        "a link that stays inside is one, too"
    );

    let (temp, inside) = temp_project();
    symlink("nowhere", temp.path().join(AI_DIR)).expect("linked");
    assert_eq!(
        variant_name(inside.ai_dir()),
        "link",
        "a link to nothing must not look like a project without .ai"
    );

    let (temp, inside) = temp_project();
    std::fs::create_dir(temp.path().join(AI_DIR)).expect("made");
    symlink(elsewhere.path(), temp.path().join(".ai/threads")).expect("linked");
    assert_eq!(variant_name(inside.threads_dir_or_create()), "link");

    let (temp, inside) = temp_project();
    std::fs::write(temp.path().join(AI_DIR), "x").expect("written");
    assert_eq!(variant_name(inside.ai_dir()), "not a directory");
    assert_eq!(
        std::fs::read_dir(elsewhere.path())
            .expect("readable")
            .count(),
        0
    );
}

#[test]
fn tool_grants_stay_inside_project() {
    let (temp, project) = temp_project();
    for path in ["src/deep", ".ai/threads"] {
        std::fs::create_dir_all(temp.path().join(path)).expect("made");
    }
    let table = [
        ("", "ok"),
        (".", "ok"),
        ("src", "ok"),
        ("src/deep/", "ok"),
        ("./src", "ok"),
        ("none", "missing"),
        ("..", "leaves"),
        ("src/..", "leaves"),
        ("/", "leaves"),
        ("/src", "leaves"),
        (".ai", "leaves"),
        (".AI", "leaves"),
        (".ai/threads", "leaves"),
        ("src/.ai", "leaves"),
    ];
    for (path, expected) in table {
        let expected = if path == "/" { "ok" } else { expected };
        assert_eq!(variant_name(project.tool_grant(path)), expected, "{path:?}");
    }
}

#[test]
fn ambient_files_are_bounded_and_regular() {
    let temp = TempDir::new().expect("a temporary directory");
    let path = temp.path().join("script.json");
    std::fs::write(&path, "12345").expect("written");
    assert_eq!(read_ambient(&path, 5).expect("it fits"), b"12345");
    assert_eq!(variant_name(read_ambient(&path, 4)), "too large");
    assert_eq!(variant_name(read_ambient(temp.path(), 4)), "not regular");
    assert_eq!(
        variant_name(read_ambient(&temp.path().join("none"), 4)),
        "missing"
    );
}

#[test]
fn dead_processes_are_told_from_living_and_unknown() {
    let (_temp, project) = temp_project();
    let threads = project.threads_dir_or_create().expect("made");
    let gone = "native-0000000000000000";
    let of = |holder: &str| holder_state(&threads, holder).expect("readable");
    assert_eq!(
        of(gone),
        HolderState::Unknown,
        "no lock was ever taken here"
    );
    let lock = HolderLock::acquire(&threads).expect("taken");
    let other = HolderLock::acquire(&threads).expect("taken");
    assert_ne!(lock.nonce(), other.nonce());
    assert_eq!(of(lock.nonce()), HolderState::Lives);
    assert_eq!(of(&lock.holder_name(7)), HolderState::Lives);
    assert_eq!(of(&format!("{gone}/1")), HolderState::Unknown);

    // No conclusion about holders that no native process here can be.
    for holder in [
        "",
        "/",
        "wasm-1/2",
        "native-",
        "native-xyz/1",
        "native-../../../registry",
        "NATIVE-0000000000000000",
    ] {
        assert_eq!(of(holder), HolderState::Unknown, "{holder:?}");
    }

    let (holder, left) = (lock.holder_name(1), other.holder_name(1));
    drop(lock);
    assert_eq!(of(&holder), HolderState::Unknown, "it holds nothing");
    assert_eq!(of(&left), HolderState::Lives);
    other.abandon();
    assert_eq!(of(&left), HolderState::Dead);
}

/// A killed process leaves its file behind, unlocked.
#[test]
fn lock_files_of_dead_processes_are_removed() {
    let (temp, project) = temp_project();
    let threads = project.threads_dir_or_create().expect("made");
    let lock = HolderLock::acquire(&threads).expect("taken");
    let directory = temp.path().join(".ai/threads/locks.d");
    let left = directory.join("native-00000000000000aa.lock");
    std::fs::write(&left, "").expect("written");
    std::fs::write(directory.join("notes.txt"), "").expect("written");
    let of = |holder: &str| holder_state(&threads, holder).expect("readable");
    assert_eq!(of("native-00000000000000aa/3"), HolderState::Dead);
    let found = dead_processes(&threads).expect("readable");
    assert_eq!(found, ["native-00000000000000aa"]);
    let all = [found, vec![lock.nonce().to_owned(), "notes.txt".to_owned()]].concat();
    assert_eq!(remove_lock_files(&threads, &all).expect("swept"), 1);
    assert!(!left.exists());
    assert_eq!(
        std::fs::read_dir(&directory).expect("readable").count(),
        2,
        "the living and the foreign stay"
    );
    assert_eq!(of(lock.nonce()), HolderState::Lives);

    std::fs::create_dir(&left).expect("made");
    assert_eq!(
        variant_name(holder_state(&threads, "native-00000000000000aa")),
        "not regular",
        "a directory is no lock, and no answer"
    );
}
