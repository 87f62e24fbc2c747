//! Paths, names and links that must not be seen, and entries that are not files.

use super::*;
use std::path::Path;

#[test]
fn paths_that_are_refused() {
    let (temp, tools) = grant(&[("a.txt", b"one\n"), ("src/x", b"x"), ("A.TXT", b"twin\n")]);
    std::fs::write(temp.path().with_extension("outside"), "hidden").expect("written");
    let outside = format!(
        "../{}.outside",
        temp.path()
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    );
    let absolute = temp.path().join("a.txt").display().to_string();
    let long = "x".repeat(300);
    let longest = "x/".repeat(600);
    let deep = "x/".repeat(400);
    let table = [
        ("..", ".. in it"),
        ("../", ".. in it"),
        (&outside, ".. in it"),
        ("src/../a.txt", ".. in it"),
        ("src/../../a", ".. in it"),
        ("/", "is absolute"),
        ("/etc/passwd", "is absolute"),
        (&absolute, "is absolute"),
        ("//a", "is absolute"),
        ("C:/x", "is absolute"),
        ("C:", "is absolute"),
        ("src\\x", "backslashes"),
        ("..\\x", "backslashes"),
        ("a\0", "control characters"),
        ("\0", "control characters"),
        ("a\nb", "control characters"),
        (&longest, "too long"),
        (&long, "cannot be read"),
        (&deep, "there is no"),
        ("CON", "there is no"),
        ("nul.txt", "there is no"),
        ("~", "there is no"),
        ("$HOME", "there is no"),
        (" ", "there is no"),
        ("%2e%2e/x", "there is no"),
        ("src/x/y", "not a directory"),
        ("...", "there is no"),
    ];
    for (path, word) in table {
        check_path(&tools, path, word);
    }
    std::fs::remove_file(temp.path().with_extension("outside")).expect("removed");
    // Where case matters, the two names are two files, and each is read by its own name.
    let names = call(&tools, "list_files", json!({})).content;
    if names.contains("a.txt") && names.contains("A.TXT") {
        check_exact(&tools, "read_file", json!({"path": "A.TXT"}), "twin\n");
        check_exact(&tools, "read_file", json!({"path": "a.txt"}), "one\n");
    }
}

const PLANTED: [(&str, &[u8]); 7] = [
    ("a.txt", b"ok\n"),
    (".ai/threads/registry.db", b"hidden"),
    (".ai/directives/d.md", b"hidden"),
    ("sub/.ai/x", b"hidden"),
    ("sub/.AI/x", b"hidden"),
    ("sub/.Ai./x", b"hidden"),
    ("sub/plain.ai", b"ok\n"),
];

#[test]
fn the_directory_that_is_not_there() {
    let (_temp, tools) = grant(&PLANTED);
    check_exact(
        &tools,
        "list_files",
        json!({"depth": 8}),
        "a.txt (3 bytes)\nsub/\nsub/plain.ai (3 bytes)\n",
    );
    check_exact(
        &tools,
        "search_files",
        json!({"pattern": "hid"}),
        "[nothing was found]",
    );
    check_exact(
        &tools,
        "search_files",
        json!({"pattern": "ok"}),
        "a.txt:1: ok\nsub/plain.ai:1: ok\n",
    );
    let ways = [
        ".ai",
        ".ai/",
        ".AI",
        "./.ai",
        ".//.ai",
        ".ai/threads",
        ".ai/threads/registry.db",
        ".AI/directives/d.md",
        ".aI/none",
        "sub/.ai",
        "sub/.ai/x",
        "sub/.AI/x",
        "sub/.Ai./x",
        "sub/./.ai/x",
        "sub//.ai/x",
        ".ai.",
        ".ai ",
        ".ai::$DATA",
        ".\u{200c}ai",
    ];
    for path in ways {
        check_path(&tools, path, "there is no");
    }
}

#[cfg(unix)]
#[test]
fn links() {
    use std::os::unix::fs::symlink;
    let (temp, tools) = grant(&PLANTED);
    let outside = TempDir::new().expect("a temporary directory");
    std::fs::write(outside.path().join("x"), "hidden").expect("written");
    let link = |target: &Path, name: &str| symlink(target, temp.path().join(name)).expect("linked");
    link(Path::new("a.txt"), "good");
    link(Path::new("sub"), "goodsub");
    link(Path::new(".ai"), "store");
    link(Path::new(".ai/directives/d.md"), "directive");
    link(Path::new("store/threads"), "twice");
    link(Path::new("../.ai"), "sub/up");
    link(outside.path(), "out");
    link(&outside.path().join("x"), "outfile");
    link(Path::new("../"), "parent");
    link(Path::new("nowhere"), "dangling");
    link(Path::new("loop"), "loop");
    check_exact(&tools, "read_file", json!({"path": "good"}), "ok\n");
    check_exact(
        &tools,
        "read_file",
        json!({"path": "goodsub/plain.ai"}),
        "ok\n",
    );
    let all = "a.txt (3 bytes)\ngood (link)\ngoodsub (link)\nsub/\nsub/plain.ai (3 bytes)\n";
    check_exact(&tools, "list_files", json!({"depth": 8}), all);
    check_exact(
        &tools,
        "search_files",
        json!({"pattern": "h"}),
        "[nothing was found]",
    );
    let refused = [
        ("store", "there is no"),
        ("store/threads/registry.db", "there is no"),
        ("directive", "there is no"),
        ("twice/registry.db", "there is no"),
        ("sub/up/directives/d.md", "there is no"),
        ("goodsub/.ai/x", "there is no"),
        ("goodsub/up", "there is no"),
        ("out", "leads out"),
        ("out/x", "leads out"),
        ("outfile", "leads out"),
        ("parent", "leads out"),
        ("dangling", "there is no"),
        ("loop", "cannot be read"),
    ];
    for (path, word) in refused {
        check_path(&tools, path, word);
    }
}

/// Symptom: a file of `.ai`, or of another user, could be read under a second name. Cause: only
/// names were checked. Fix: a file with more than one name is not read.
#[cfg(unix)]
#[test]
fn hard_links() {
    let (temp, tools) = grant(&PLANTED);
    let outside = temp.path().with_extension("outside");
    std::fs::write(&outside, "hidden").expect("written");
    let link = |target: &Path, name: &str| {
        std::fs::hard_link(target, temp.path().join(name)).expect("linked");
    };
    link(&temp.path().join(".ai/threads/registry.db"), "store");
    link(&temp.path().join("sub/.ai/x"), "sub/nested");
    link(&outside, "out");
    let refused = ["store", "sub/nested", "out"];
    for path in refused {
        check_path(&tools, path, "is a hard link");
    }
    let all = "a.txt (3 bytes)\nout (hard link, not to be read)\nstore (hard link, not to be \
               read)\nsub/\n\
               sub/nested (hard link, not to be read)\nsub/plain.ai (3 bytes)\n";
    check_exact(&tools, "list_files", json!({"depth": 8}), all);
    let found = call(&tools, "search_files", json!({"pattern": "hid"})).content;
    assert!(found.contains("[3 hard links were not searched"), "{found}");
    std::fs::remove_file(outside).expect("removed");
    // Once its other name is removed, it is an ordinary file.
    std::fs::remove_file(temp.path().join("out")).expect("removed");
    std::fs::write(temp.path().join("b.txt"), "ok\n").expect("written");
    link(&temp.path().join("b.txt"), "c.txt");
    check_path(&tools, "b.txt", "is a hard link");
    std::fs::remove_file(temp.path().join("c.txt")).expect("removed");
    check_exact(&tools, "read_file", json!({"path": "b.txt"}), "ok\n");
}

/// Neither a pipe without a writer nor a device may block a call.
#[cfg(unix)]
#[test]
fn special_files() {
    let (temp, tools) = grant(&[("a.txt", b"ok\n")]);
    let pipe = temp.path().join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .is_ok_and(|status| status.success());
    let _socket =
        std::os::unix::net::UnixListener::bind(temp.path().join("socket")).expect("bound");
    let listed = call(&tools, "list_files", json!({})).content;
    assert!(listed.contains("socket (not a regular file)"), "{listed}");
    check_path(&tools, "socket", "pipe, a socket or a device");
    if made {
        check_path(&tools, "pipe", "pipe, a socket or a device");
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).expect("it opens");
        assert!(crate::authority::open_regular(&dir, Path::new("pipe"), "pipe").is_err());
    }
    check_exact(
        &tools,
        "search_files",
        json!({"pattern": "ok"}),
        "a.txt:1: ok\n",
    );
}
