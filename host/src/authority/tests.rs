//! Tests: contents and refusals of a project directory, and detection of dead processes.

use super::*;
use tempfile::TempDir;

fn project() -> (TempDir, Project) {
    let temp = TempDir::new().expect("a temporary directory");
    let project = Project::open_ambient(temp.path()).expect("it opens");
    (temp, project)
}

/// The name of the variant.
fn word<T>(result: Result<T, AuthorityError>) -> &'static str {
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
fn the_rooms_of_a_project() {
    let (temp, project) = project();
    assert!(project.ai().expect("readable").is_none());
    project.threads().expect("made");
    project.threads().expect("opened again");
    assert!(temp.path().join(".ai/threads").is_dir());
    assert!(project.ai().expect("readable").is_some());
    assert_eq!(
        word(Project::open_ambient(&temp.path().join("none"))),
        "missing"
    );
    std::fs::write(temp.path().join("file"), "x").expect("written");
    assert_eq!(
        word(Project::open_ambient(&temp.path().join("file"))),
        "not a directory"
    );
}

#[cfg(unix)]
#[test]
fn links_in_place_of_rooms() {
    use std::os::unix::fs::symlink;
    let elsewhere = TempDir::new().expect("a temporary directory");
    let (temp, inside) = project();
    symlink(elsewhere.path(), temp.path().join(AI)).expect("linked");
    assert_eq!(word(inside.ai()), "link");
    assert_eq!(word(inside.ai_or_create()), "link");
    assert_eq!(word(inside.threads()), "link");

    let (temp, inside) = project();
    std::fs::create_dir(temp.path().join("real")).expect("made");
    symlink("real", temp.path().join(AI)).expect("linked");
    assert_eq!(
        word(inside.ai()),
        "link",
        "a link that stays inside is one, too"
    );

    let (temp, inside) = project();
    symlink("nowhere", temp.path().join(AI)).expect("linked");
    assert_eq!(
        word(inside.ai()),
        "link",
        "a link to nothing must not look like a project without .ai"
    );

    let (temp, inside) = project();
    std::fs::create_dir(temp.path().join(AI)).expect("made");
    symlink(elsewhere.path(), temp.path().join(".ai/threads")).expect("linked");
    assert_eq!(word(inside.threads()), "link");

    let (temp, inside) = project();
    std::fs::write(temp.path().join(AI), "x").expect("written");
    assert_eq!(word(inside.ai()), "not a directory");
    assert_eq!(
        std::fs::read_dir(elsewhere.path())
            .expect("readable")
            .count(),
        0
    );
}

#[test]
fn grants() {
    let (temp, project) = project();
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
        assert_eq!(word(project.tool_grant(path)), expected, "{path:?}");
    }
}

#[test]
fn files_from_outside() {
    let temp = TempDir::new().expect("a temporary directory");
    let path = temp.path().join("script.json");
    std::fs::write(&path, "12345").expect("written");
    assert_eq!(read_ambient(&path, 5).expect("it fits"), b"12345");
    assert_eq!(word(read_ambient(&path, 4)), "too large");
    assert_eq!(word(read_ambient(temp.path(), 4)), "not regular");
    assert_eq!(word(read_ambient(&temp.path().join("none"), 4)), "missing");
}

fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment::from_pairs(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

#[test]
fn variables() {
    let long = "x".repeat(VARIABLE_BYTES_MAX);
    let variables = environment(&[("A", "1"), ("B_2", "${A}"), ("EMPTY", ""), ("LONG", &long)]);
    let unset = |name: &str| {
        Err(ExpandError::Unset {
            name: name.to_owned(),
        })
    };
    let table = [
        ("", Ok("")),
        ("plain $ { } $A", Ok("plain $ { } $A")),
        ("${A}", Ok("1")),
        ("x${A}y${A}z", Ok("x1y1z")),
        ("${B_2}", Ok("${A}")),
        ("$${A}", Ok("$1")),
        ("${a}", unset("a")),
        ("${NONE}", unset("NONE")),
        ("${EMPTY}", unset("EMPTY")),
        ("${A", Err(ExpandError::Malformed)),
        ("${}", Err(ExpandError::Malformed)),
        ("${A B}", Err(ExpandError::Malformed)),
        ("${1A}", Err(ExpandError::Malformed)),
        ("${A:-x}", Err(ExpandError::Malformed)),
        ("${${A}}", Err(ExpandError::Malformed)),
        ("${LONG}${LONG}${A}", Err(ExpandError::TooLong)),
    ];
    for (text, expected) in table {
        assert_eq!(
            variables.expand(text),
            expected.map(str::to_owned),
            "{text:?}"
        );
    }
}

#[test]
fn what_a_snapshot_holds() {
    let variables = environment(&[
        ("X_API_KEY", "sk-1"),
        ("X_BASE_URL", "u"),
        ("SECRET", "s"),
        ("a=b", "x"),
    ]);
    assert_eq!(variables.for_providers().get("X_API_KEY"), Some("sk-1"));
    assert_eq!(variables.for_providers().get("X_BASE_URL"), Some("u"));
    assert_eq!(variables.for_providers().get("SECRET"), None);
    assert_eq!(variables.only(&["SECRET"]).get("X_API_KEY"), None);
    assert_eq!(variables.get("a=b"), None);
    assert!(!format!("{variables:?}").contains("sk-1"));

    let too_long = "x".repeat(VARIABLE_BYTES_MAX + 1);
    assert_eq!(environment(&[("A", &too_long)]).get("A"), None);
    let many =
        Environment::from_pairs((0..=VARIABLES_MAX).map(|n| (format!("V{n}"), "x".to_owned())));
    assert_eq!(many.get("V0"), Some("x"));
    assert_eq!(many.get(&format!("V{VARIABLES_MAX}")), None);
}

#[test]
fn who_is_dead() {
    let (_temp, project) = project();
    let threads = project.threads().expect("made");
    let gone = "native-0000000000000000";
    let of = |holder: &str| life(&threads, holder).expect("readable");
    assert_eq!(of(gone), Life::Unknown, "no lock was ever taken here");
    let lock = HolderLock::take(&threads).expect("taken");
    let other = HolderLock::take(&threads).expect("taken");
    assert_ne!(lock.nonce(), other.nonce());
    assert_eq!(of(lock.nonce()), Life::Lives);
    assert_eq!(of(&lock.holder(7)), Life::Lives);
    assert_eq!(of(&format!("{gone}/1")), Life::Unknown);

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
        assert_eq!(of(holder), Life::Unknown, "{holder:?}");
    }

    let (holder, left) = (lock.holder(1), other.holder(1));
    drop(lock);
    assert_eq!(of(&holder), Life::Unknown, "it holds nothing");
    assert_eq!(of(&left), Life::Lives);
    other.leave();
    assert_eq!(of(&left), Life::Dead);
}

/// A killed process leaves its file behind, unlocked.
#[test]
fn what_the_dead_leave_behind() {
    let (temp, project) = project();
    let threads = project.threads().expect("made");
    let lock = HolderLock::take(&threads).expect("taken");
    let directory = temp.path().join(".ai/threads/locks.d");
    let left = directory.join("native-00000000000000aa.lock");
    std::fs::write(&left, "").expect("written");
    std::fs::write(directory.join("notes.txt"), "").expect("written");
    let of = |holder: &str| life(&threads, holder).expect("readable");
    assert_eq!(of("native-00000000000000aa/3"), Life::Dead);
    let found = dead(&threads).expect("readable");
    assert_eq!(found, ["native-00000000000000aa"]);
    let all = [found, vec![lock.nonce().to_owned(), "notes.txt".to_owned()]].concat();
    assert_eq!(sweep(&threads, &all).expect("swept"), 1);
    assert!(!left.exists());
    assert_eq!(
        std::fs::read_dir(&directory).expect("readable").count(),
        2,
        "the living and the foreign stay"
    );
    assert_eq!(of(lock.nonce()), Life::Lives);

    std::fs::create_dir(&left).expect("made");
    assert_eq!(
        word(life(&threads, "native-00000000000000aa")),
        "not regular",
        "a directory is no lock, and no answer"
    );
}
