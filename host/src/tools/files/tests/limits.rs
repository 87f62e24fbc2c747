//! Large files, many files, and the bounds on the reading of one call.

use super::*;
use crate::file_tools::{
    FOLLOWED_LINKS_MAX, SEARCHED_BYTES_MAX, SEARCHED_FILE_BYTES_MAX, SEARCHED_LEVELS_MAX,
    SKIPPED_BYTES_MAX,
};

/// Results for the files that `large_and_binary_files` plants.
const LARGE: &[ToolCase<'_>] = &[
    (
        "read_file",
        r#"{"path": "big"}"#,
        false,
        "[lines 1 to 2000 of a file of 5600000 bytes; go on with offset 2001]",
    ),
    (
        "read_file",
        r#"{"path": "big", "limit": 10000}"#,
        false,
        "go on with offset 4645]",
    ),
    (
        "read_file",
        r#"{"path": "big", "offset": 399999}"#,
        false,
        "line 00399999\nline 00400000\n",
    ),
    (
        "read_file",
        r#"{"path": "big", "offset": 400001}"#,
        true,
        "has 400000 lines",
    ),
    (
        "read_file",
        r#"{"path": "big", "offset": 400002}"#,
        true,
        "has 400000 lines",
    ),
    (
        "read_file",
        r#"{"path": "line"}"#,
        false,
        "line 1 is cut; search_files",
    ),
    (
        "read_file",
        r#"{"path": "torn"}"#,
        false,
        "go on with offset 2]",
    ),
    (
        "read_file",
        r#"{"path": "torn", "offset": 2}"#,
        false,
        "last\n",
    ),
    (
        "read_file",
        r#"{"path": "binary"}"#,
        true,
        "is not text (6 bytes)",
    ),
    ("read_file", r#"{"path": "utf16"}"#, true, "is not text"),
    (
        "read_file",
        r#"{"path": "bad"}"#,
        false,
        "bytes that are not UTF-8",
    ),
    (
        "search_files",
        r#"{"pattern": "line 0039"}"#,
        false,
        "more lines match",
    ),
    (
        "search_files",
        r#"{"pattern": "00400000", "path": "big"}"#,
        false,
        "big:400000: line 00400000\n",
    ),
    (
        "search_files",
        r#"{"pattern": "needle"}"#,
        false,
        "aneedleé",
    ),
    (
        "search_files",
        r#"{"pattern": "ELF"}"#,
        false,
        "[nothing was found]",
    ),
    (
        "search_files",
        r#"{"pattern": "zzz"}"#,
        false,
        "1 files over",
    ),
];

#[test]
fn large_and_binary_files() {
    let numbered: String = (1..=400_000).map(|n| format!("line {n:08}\n")).collect();
    let one_line = "é".repeat(100_000);
    let torn = format!("{}\nlast\n", "é".repeat(40_000));
    let needle = format!("{}needle{}\n", "a".repeat(5_000), "é".repeat(5_000));
    let (temp, tools) = grant(&[
        ("big", numbered.as_bytes()),
        ("line", one_line.as_bytes()),
        ("torn", torn.as_bytes()),
        ("needle", needle.as_bytes()),
        ("binary", b"\x7fELF\0\0"),
        ("utf16", b"\xff\xfeh\0i\0"),
        ("bad", &[0xff; 60_000]),
    ]);
    plant_sparse(&temp, "over", SEARCHED_FILE_BYTES_MAX + 1);
    check(&tools, LARGE);
}

/// Makes a sparse file of this size.
fn plant_sparse(temp: &TempDir, name: &str, bytes: u64) {
    let path = temp.path().join(name);
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("made");
    file.set_len(bytes).expect("sized");
}

#[test]
fn how_much_one_call_reads() {
    let (temp, tools) = grant(&[("text", "a".repeat(8 << 10).as_bytes())]);
    plant_sparse(&temp, "text", SKIPPED_BYTES_MAX + (1 << 20));
    let far = r#"{"path": "text", "offset": 2}"#;
    check(&tools, &[("read_file", far, true, "too far into the file")]);
    for n in 0..=SEARCHED_BYTES_MAX / SEARCHED_FILE_BYTES_MAX {
        plant_sparse(&temp, &format!("f{n}"), SEARCHED_FILE_BYTES_MAX);
    }
    let nothing = r#"{"pattern": "zzz"}"#;
    check(
        &tools,
        &[("search_files", nothing, false, "[too much to read")],
    );
}

#[test]
fn how_deep_a_search_goes() {
    let (temp, tools) = grant(&[]);
    let deep = |levels: usize| temp.path().join("d/".repeat(levels));
    std::fs::create_dir_all(deep(SEARCHED_LEVELS_MAX)).expect("made");
    std::fs::write(deep(SEARCHED_LEVELS_MAX - 1).join("in"), "match").expect("written");
    std::fs::write(deep(SEARCHED_LEVELS_MAX).join("out"), "match").expect("written");
    let found = call(&tools, "search_files", json!({"pattern": "match"})).content;
    assert!(
        found.contains("/in:1: match") && !found.contains("/out"),
        "{found}"
    );
    assert!(
        found.contains("[1 files or directories could not be read]"),
        "{found}"
    );
    let further = json!({"pattern": "match", "path": "d"});
    let found = call(&tools, "search_files", further).content;
    assert!(found.contains("/out:1: match"), "{found}");
}

const MANY: &[ToolCase<'_>] = &[
    (
        "list_files",
        r#"{"path": "a"}"#,
        false,
        "[some entries cannot be shown]",
    ),
    ("list_files", r#"{"path": "c"}"#, false, "c/f (5 bytes)\n"),
    (
        "search_files",
        r#"{"pattern": "match"}"#,
        false,
        "[nothing was found][too many files",
    ),
    (
        "search_files",
        r#"{"pattern": "match", "path": "c"}"#,
        false,
        "c/f:1: match",
    ),
];

#[test]
fn directories_without_end() {
    let (temp, mut tools) = grant(&[("c/f", b"match")]);
    let grant = Arc::get_mut(&mut tools.grant).expect("nobody else has it");
    grant.lower_bounds(5, 10);
    for dir in ["a", "b"] {
        std::fs::create_dir(temp.path().join(dir)).expect("made");
        for n in 0..6 {
            std::fs::write(temp.path().join(format!("{dir}/{n}")), "").expect("written");
        }
    }
    check(&tools, MANY);
}

/// Symptom: a listing of 20,000 broken links ran for minutes after its call had ended. Cause: only
/// listed entries counted, and the end of the call was not checked. Fix: every entry looked at
/// counts, and so does every link that is followed. Kind: entries that are left out (broken or
/// circular links, names that are not UTF-8, hidden ones), alone and below directories.
#[cfg(unix)]
#[test]
fn what_is_not_shown_counts_too() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    let (temp, mut tools) = grant(&[]);
    /// Name of a directory, and the function that plants its n-th entry.
    type PlantedEntries<'a> = (&'a str, &'a dyn Fn(&std::path::Path, usize));
    let planted: [PlantedEntries<'_>; 3] = [
        ("nowhere", &|dir, n| {
            symlink("gone", dir.join(n.to_string())).expect("made")
        }),
        ("circle", &|dir, n| {
            symlink(n.to_string(), dir.join(n.to_string())).expect("made")
        }),
        ("bytes", &|dir, n| {
            let name = [b"\xff".as_slice(), n.to_string().as_bytes()].concat();
            std::fs::write(dir.join(std::ffi::OsStr::from_bytes(&name)), "").expect("written");
        }),
    ];
    for (name, plant) in planted {
        let dir = temp.path().join(name);
        std::fs::create_dir(&dir).expect("made");
        (0..30).for_each(|n| plant(&dir, n));
    }
    let incomplete = "[some entries cannot be shown]";
    let grant = Arc::get_mut(&mut tools.grant).expect("nobody else has it");
    grant.lower_bounds(10, 1_000);
    for (name, _) in planted {
        check_exact(&tools, "list_files", json!({"path": name}), incomplete);
    }
    let grant = Arc::get_mut(&mut tools.grant).expect("nobody else has it");
    grant.lower_bounds(1_000, 20);
    for (name, _) in planted {
        check_exact(&tools, "list_files", json!({"path": name}), incomplete);
        let search = json!({"pattern": "x", "path": name});
        let found = call(&tools, "search_files", search).content;
        assert!(found.contains("[too many files"), "{name}: {found}");
    }
    let deep = call(&tools, "list_files", json!({"depth": 2})).content;
    assert!(deep.ends_with(incomplete), "{deep}");
}

/// The links of the symptom above, and links that can be opened: no more are followed than a
/// listing has lines.
#[cfg(unix)]
#[test]
fn twenty_thousand_links() {
    let (temp, tools) = grant(&[("file", b"x")]);
    for n in 0..20_000 {
        let (name, target) = (format!("l{n:05}"), ["gone", "file"][n % 2]);
        std::os::unix::fs::symlink(target, temp.path().join(name)).expect("made");
    }
    let listed = call(&tools, "list_files", json!({})).content;
    assert!(
        listed.ends_with("[some entries cannot be shown]"),
        "{listed}"
    );
    let links = listed
        .lines()
        .filter(|line| line.ends_with("(link)"))
        .count();
    assert!((1..=FOLLOWED_LINKS_MAX).contains(&links), "{links}");
}

const THOUSAND: &[ToolCase<'_>] = &[
    ("list_files", "{}", false, "[only the first 1000 are shown"),
    (
        "search_files",
        r#"{"pattern": "match"}"#,
        false,
        "f00049:1: match\n[more lines match",
    ),
    (
        "search_files",
        r#"{"pattern": "match", "max": 200}"#,
        false,
        "f00199:1: match\n[more",
    ),
];

#[test]
fn many_files() {
    let (temp, tools) = grant(&[]);
    check_exact(&tools, "list_files", json!({}), "[the directory is empty]");
    for n in 0..1_001 {
        std::fs::write(temp.path().join(format!("f{n:05}")), "match\n").expect("written");
    }
    check(&tools, THOUSAND);
}
