//! The library over planted directories: documents, hostile names, hostile files.

use super::*;
use crate::authority::ProjectDir;
use crate::library::files::{DEPTH_MAX, DOCUMENT_BYTES_MAX, NAME_BYTES_MAX, SCRIPT_BYTES_MAX};
use crate::library::{NAMES_MAX, yaml};
use crate::policy::PolicyPreset;
use std::time::Duration;
use tempfile::TempDir;

/// Makes a project with these files below `.ai`, and a library over it.
fn library(files: &[(&str, &str)]) -> (TempDir, GrantedLibrary) {
    let temp = TempDir::new().expect("a temporary directory");
    std::fs::create_dir(temp.path().join(".ai")).expect("made");
    for (path, content) in files {
        let path = temp.path().join(".ai").join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        std::fs::write(path, content).expect("written");
    }
    let library = reopen_library(&temp, Policy::preset(PolicyPreset::Local));
    (temp, library)
}

fn reopen_library(temp: &TempDir, policy: Policy) -> GrantedLibrary {
    let ai = ProjectDir::open_ambient(temp.path())
        .and_then(|project| project.ai_dir())
        .expect("it opens");
    let schema = r#"{"type":"object"}"#;
    let tool = ToolEntry::new("read_file", "Read.", schema, Duration::from_secs(30)).idempotent();
    GrantedLibrary::open(ai, policy, vec![tool], EnvironmentSnapshot::default())
}

/// Returns the document, or the names of the kind if `name` is empty; `none`, or the error as a
/// sentence.
fn document_text(library: &GrantedLibrary, kind: &str, name: &str) -> String {
    let found = match name {
        "" => library.names(kind).map(|names| names.join(" ")),
        name => library.document(kind, name).map(Option::unwrap_or_default),
    };
    match found {
        Ok(text) if text.is_empty() => "none".to_owned(),
        Ok(text) => text,
        Err(error) => format!("error: {error}"),
    }
}

const FILES: &[(&str, &str)] = &[
    (
        "directives/research.md",
        "---\nmodel: fast\nlimits: {spend: 0.10}\n---\nFind ${inputs.topic}.\n",
    ),
    ("directives/team/plain.md", "Only text."),
    ("directives/team/deep/er.md", "x"),
    ("directives/notes.txt", "x"),
    ("directives/.hidden.md", "x"),
    ("directives/with.dot.md", "x"),
    ("knowledge/style.md", "---\ntags: [a]\n---\nBe brief.\n"),
    (
        "config/coordination.yaml",
        "coordination: {continuation: {trigger_threshold: 0.90}}\n",
    ),
    ("config/state_persistence.yaml", "# nothing yet\n"),
    (
        "config/models.yaml",
        "models: {m: {provider: openai, output: 5}}\ntiers: {fast: m}\n",
    ),
];

/// Columns: kind, name, document.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    (
        "directive",
        "research",
        concat!(
            r#"{"name":"research","body":"Find ${inputs.topic}.\n","front":{"model":"fast","#,
            r#""limits":{"spend":0.10}}}"#
        ),
    ),
    (
        "directive",
        "team/plain",
        r#"{"name":"team/plain","body":"Only text.","front":{}}"#,
    ),
    ("directive", "", "research team/deep/er team/plain"),
    ("directive", "none", "none"),
    ("directive", "team", "none"),
    ("directive", "team/none/x", "none"),
    ("directive", "research/x", "none"),
    ("directive", "Research", "none"),
    ("directive", "TEAM/plain", "none"),
    (
        "knowledge",
        "style",
        r#"{"name":"style","body":"Be brief.\n"}"#,
    ),
    ("knowledge", "", "style"),
    (
        "settings",
        "coordination",
        r#"{"coordination":{"continuation":{"trigger_threshold":0.90}}}"#,
    ),
    ("settings", "state_persistence", "{}"),
    ("settings", "preset", r#"{"name":"local"}"#),
    ("settings", "policy", r#"{"limits":{}}"#),
    ("settings", "models", "none"),
    ("settings", "../config/models", "none"),
    (
        "settings",
        "",
        "coordination policy preset state_persistence",
    ),
    (
        "model",
        "fast",
        r#"{"name":"m","provider":"openai","output":5}"#,
    ),
    ("model", "../m", "none"),
    ("model", "", "fast m"),
    (
        "tool",
        "read_file",
        concat!(
            r#"{"name":"read_file","description":"Read.","schema":{"type":"object"},"#,
            r#""idempotent":true,"consent":false,"timeout":30000}"#
        ),
    ),
    ("tool", "write_file", "none"),
    ("tool", "", "read_file"),
];

#[test]
fn documents() {
    let (_temp, library) = library(FILES);
    for (kind, name, expected) in DOCUMENTS {
        assert_eq!(
            document_text(&library, kind, name),
            *expected,
            "{kind} {name}"
        );
    }
    assert!(matches!(
        library.names("secrets"),
        Err(LibraryError::Other {
            code: "unknown_kind",
            ..
        })
    ));
}

#[test]
fn a_project_without_a_directory() {
    let temp = TempDir::new().expect("a temporary directory");
    let library = reopen_library(&temp, Policy::preset(PolicyPreset::Strict));
    for (kind, name, expected) in [
        ("directive", "", "none"),
        ("directive", "x", "none"),
        ("knowledge", "x", "none"),
        ("settings", "coordination", "none"),
        ("settings", "preset", r#"{"name":"strict"}"#),
    ] {
        assert_eq!(
            document_text(&library, kind, name),
            expected,
            "{kind} {name}"
        );
    }
    assert!(document_text(&library, "model", "default").contains("gpt-4o-mini"));
    assert!(library.read_script("x").is_err());
}

/// A file is read again on each call.
#[test]
fn an_edit_is_seen() {
    let (temp, library) = library(&[("directives/a.md", "one")]);
    assert!(document_text(&library, "directive", "a").contains("one"));
    std::fs::write(temp.path().join(".ai/directives/a.md"), "two").expect("written");
    assert!(document_text(&library, "directive", "a").contains("two"));
}

const NO_NAMES: &[&str] = &[
    "..",
    ".",
    "../secret",
    "../../outside",
    "a/../../secret",
    "a/..",
    "./a",
    "a/.",
    "/a",
    "//a",
    "a/",
    "a//b",
    "/",
    "a.md",
    "a ",
    " a",
    "a\0",
    "a\0.md",
    "\0",
    "a\n",
    "\u{1b}[0m",
    "a\\b",
    "..\\secret",
    "C:a",
    "a:b",
    "~",
    "~/a",
    "$HOME",
    "${HOME}",
    "%2e%2e/secret",
    "é",
    "ａ",
    "a\u{202e}b",
    "con",
    "CON",
    "Con",
    "nul",
    "x/aux",
    "com1/x",
    "LPT9",
    "*",
    "a?",
];

#[test]
fn names_that_are_no_names() {
    let (temp, library) = library(&[
        ("directives/a.md", "x"),
        ("secret.md", "hidden"),
        ("directives/con.md", "x"),
    ]);
    std::fs::write(temp.path().join("outside.md"), "hidden").expect("written");
    let long = "a".repeat(300);
    let longest = "a".repeat(NAME_BYTES_MAX);
    let absolute = temp.path().join("outside").display().to_string();
    let bad = [long.as_str(), absolute.as_str()];
    for kind in ["directive", "knowledge"] {
        for name in NO_NAMES.iter().chain(&bad) {
            let error = library.document(kind, name).expect_err(name);
            let LibraryError::Invalid {
                place,
                value,
                problem,
                ..
            } = &error
            else {
                panic!("{name:?}: {error:?}");
            };
            assert!(
                !problem.is_empty() && value.chars().count() <= 100 && !value.contains('\0'),
                "{name:?}"
            );
            assert!(
                !format!("{place}{problem}").contains("hidden"),
                "{name:?}: {error:?}"
            );
        }
        assert_eq!(document_text(&library, kind, &longest), "none");
        assert!(
            !document_text(&library, kind, "").contains("con"),
            "a device's name is not listed"
        );
    }
}

/// Columns: kind, name, part of the error.
const BROKEN: &[(&str, &str, &str)] = &[
    (
        "directive",
        "open",
        ".ai/directives/open.md:1: the front matter that the first line opens is never closed",
    ),
    ("directive", "tag", ".ai/directives/tag.md:3: column"),
    (
        "directive",
        "list",
        ".ai/directives/list.md:2: the front matter must be keys",
    ),
    (
        "directive",
        "big",
        ".ai/directives/big.md: is larger than 524288 bytes",
    ),
    (
        "directive",
        "dir",
        ".ai/directives/dir.md: is not a regular file",
    ),
    (
        "directive",
        "latin",
        ".ai/directives/latin.md:1: byte 3 is not UTF-8",
    ),
    (
        "settings",
        "coordination",
        "agent/coordination.yaml is there too",
    ),
    (
        "settings",
        "state_persistence",
        ".ai/config/state_persistence.yaml:2: column 1: the key \"a\" stands twice",
    ),
    (
        "model",
        "default",
        ".ai/config/models.yaml:1: modles: this key is not known",
    ),
];

#[test]
fn files_that_are_not_what_they_should_be() {
    let big = "x".repeat(DOCUMENT_BYTES_MAX as usize + 1);
    let whole = "x".repeat(DOCUMENT_BYTES_MAX as usize);
    let (temp, library) = library(&[
        ("directives/open.md", "---\nmodel: fast\n"),
        ("directives/tag.md", "---\na: 1\nmodel: !x fast\n---\n"),
        ("directives/list.md", "---\n- a\n---\n"),
        ("directives/big.md", &big),
        ("directives/whole.md", &whole),
        ("directives/twin.md", "x"),
        ("directives/dir.md/x.md", "x"),
        ("config/coordination.yaml", "a: 1"),
        ("config/agent/coordination.yaml", "a: 1"),
        ("config/state_persistence.yaml", "a: 1\na: 2\n"),
        ("config/models.yaml", "modles: {}\n"),
    ]);
    let path = |file: &str| temp.path().join(".ai/directives").join(file);
    std::fs::write(path("latin.md"), b"caf\xe9\n").expect("written");
    std::fs::write(path("Twin.md"), "y").expect("written");
    let twins = std::fs::read_dir(path(""))
        .expect("readable")
        .flatten()
        .filter(|entry| entry.file_name().eq_ignore_ascii_case("twin.md"))
        .count()
        == 2;
    for (kind, name, word) in BROKEN {
        let found = document_text(&library, kind, name);
        assert!(
            found.starts_with("error: ") && found.contains(word),
            "{kind} {name}: {found}"
        );
    }
    assert!(document_text(&library, "directive", "whole").len() > whole.len());
    if twins {
        for name in ["twin", "Twin"] {
            assert!(
                document_text(&library, "directive", name).contains("upper and lower case only"),
                "{name}"
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn links_and_pipes() {
    use std::os::unix::fs::symlink;
    let (temp, library) = library(&[
        ("directives/real.md", "ok"),
        ("directives/twice.md", "hidden"),
        ("knowledge/k.md", "ok"),
        ("threads/t.md", "hidden"),
    ]);
    std::fs::write(temp.path().join("outside.md"), "hidden").expect("written");
    std::fs::create_dir(temp.path().join("dir")).expect("made");
    std::fs::write(temp.path().join("dir/x.md"), "hidden").expect("written");
    let at = |name: &str| temp.path().join(".ai/directives").join(name);
    symlink("real.md", at("inside.md")).expect("linked");
    symlink("../../outside.md", at("outside.md")).expect("linked");
    symlink(temp.path().join("outside.md"), at("absolute.md")).expect("linked");
    symlink("../threads/t.md", at("store.md")).expect("linked");
    symlink("../../dir", at("dir")).expect("linked");
    symlink("nowhere.md", at("dangling.md")).expect("linked");
    symlink("loop.md", at("loop.md")).expect("linked");
    std::fs::hard_link(at("twice.md"), at("hard.md")).expect("linked");
    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe.md"))
        .status()
        .is_ok_and(|status| status.success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.md"));
    let table = [
        ("real", r#""body":"ok""#),
        ("inside", r#""body":"ok""#),
        // A hard link looks like the file itself, and one of the names may be outside.
        ("hard", "is a hard link"),
        ("twice", "is a hard link"),
        ("outside", "leads out of its directory"),
        ("absolute", "leads out of its directory"),
        ("store", "leads out of its directory"),
        ("dir/x", "leads out of its directory"),
        ("dangling", "none"),
        ("loop", "error"),
        ("socket", "not a regular file"),
        ("pipe", if made { "not a regular file" } else { "none" }),
    ];
    for (name, word) in table {
        let found = document_text(&library, "directive", name);
        assert!(
            found.contains(word) && !found.contains("hidden"),
            "{name}: {found}"
        );
    }
    assert_eq!(
        document_text(&library, "directive", ""),
        "hard inside real twice"
    );

    std::fs::remove_dir_all(temp.path().join(".ai/knowledge")).expect("removed");
    symlink(temp.path().join("dir"), temp.path().join(".ai/knowledge")).expect("linked");
    assert!(document_text(&library, "knowledge", "x").contains("symbolic link"));
    assert!(document_text(&library, "knowledge", "").contains("symbolic link"));
}

#[test]
fn bounded_listing() {
    let (temp, library) = library(&[("directives/a/b.md", "x")]);
    for n in 0..NAMES_MAX + 20 {
        std::fs::write(temp.path().join(format!(".ai/directives/n{n:04}.md")), "x")
            .expect("written");
    }
    let names = library.names("directive").expect("listed");
    assert_eq!(names.len(), NAMES_MAX);
    assert_eq!(
        (
            names[0].as_str(),
            names[1].as_str(),
            names[NAMES_MAX - 1].as_str()
        ),
        ("a/b", "n0000", "n0498")
    );
    let deep = "d/".repeat(DEPTH_MAX);
    std::fs::create_dir_all(temp.path().join(".ai/knowledge").join(&deep)).expect("made");
    std::fs::write(temp.path().join(format!(".ai/knowledge/{deep}x.md")), "x").expect("written");
    assert_eq!(document_text(&library, "knowledge", ""), "none");
}

#[test]
fn too_much() {
    let (temp, mut library) = library(&[
        ("config/models.yaml", "x"),
        ("answers", ""),
        ("knowledge/a.md", "x"),
    ]);
    let sized = |path: &str, bytes: u64| {
        let file = std::fs::File::create(temp.path().join(".ai").join(path)).expect("made");
        file.set_len(bytes).expect("sized");
    };
    sized("config/models.yaml", yaml::TEXT_BYTES_MAX as u64 + 1);
    assert!(document_text(&library, "model", "x").contains("is larger than 262144 bytes"));
    sized("answers", SCRIPT_BYTES_MAX);
    assert!(library.read_script("answers").is_ok());
    sized("answers", SCRIPT_BYTES_MAX + 1);
    assert!(
        library
            .read_script("answers")
            .is_err_and(|error| error.to_string().contains("is larger than"))
    );
    library.library = library.library.with_entries_max(5);
    for n in 0..5 {
        let path = temp.path().join(format!(".ai/knowledge/{n}"));
        std::fs::File::create(path).expect("made");
    }
    assert!(document_text(&library, "knowledge", "a").contains("body"));
    assert_eq!(document_text(&library, "knowledge", "b"), "none");
    let listed = library.names("knowledge").expect("listed");
    assert!(listed.is_empty() || listed == ["a"], "{listed:?}");
}

#[test]
fn scripts_and_policy() {
    let (temp, library) = library(&[
        ("answers.json", "[]"),
        (
            "config/models.yaml",
            "providers: {demo: {wire: scripted, file: answers.json}}\nmodels: \
             {a: {provider: demo, output: 1}, b: {provider: demo, output: 1}}\n",
        ),
    ]);
    let file = library
        .models()
        .and_then(|table| table.provider("demo"))
        .map(|spec| spec.file)
        .expect("defined");
    assert_eq!(
        library.read_script(file.as_deref().unwrap_or_default()),
        Ok("[]".to_owned())
    );
    std::fs::write(temp.path().join("outside.json"), "hidden").expect("written");
    for bad in [
        "../outside.json",
        "/etc/hostname",
        "",
        ".",
        "config",
        "none",
        "a\0b",
        "config/../../outside.json",
    ] {
        let error = library.read_script(bad).expect_err(bad);
        assert!(!format!("{error:?}").contains("hidden"), "{bad:?}");
    }
    let policy = "models: {b: {}}\nlimits: {spend: '1'}\ntools: [read_file]";
    let policy = Policy::parse(policy, "the policy").expect("it is a policy");
    let restricted = reopen_library(&temp, policy);
    assert_eq!(document_text(&restricted, "model", ""), "b");
    assert_eq!(document_text(&restricted, "model", "c"), "none");
    let refused = document_text(&restricted, "model", "a");
    assert!(
        refused.contains("is not granted by the operator's policy, the policy"),
        "{refused}"
    );
    assert_eq!(
        document_text(&restricted, "settings", "policy"),
        r#"{"limits":{"spend":"1"},"capabilities":["execute.tool.read_file"]}"#
    );
}
