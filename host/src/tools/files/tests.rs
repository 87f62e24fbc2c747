//! The file tools over planted directories: results, refusals, cuts.

mod limits;
mod paths;

use super::*;
use crate::tools::RESULT_BYTES_MAX;
use cap_std::ambient_authority;
use serde_json::json;
use tempfile::TempDir;

fn grant(files: &[(&str, &[u8])]) -> (TempDir, FilesTools) {
    let temp = TempDir::new().expect("a temporary directory");
    for (path, content) in files {
        let path = temp.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        std::fs::write(path, content).expect("written");
    }
    let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).expect("it opens");
    (temp, FilesTools::new(dir))
}

fn call(tools: &FilesTools, name: &str, arguments: serde_json::Value) -> ToolResult {
    call_text(tools, name, &arguments.to_string())
}

/// Calls a tool; checks that the answer is within the bound and reveals nothing of a file that
/// holds "hidden".
fn call_text(tools: &FilesTools, name: &str, arguments: &str) -> ToolResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let result = runtime.block_on(tools.call(name, arguments));
    let bytes = result.content.len();
    assert!(
        bytes <= RESULT_BYTES_MAX,
        "{name} {arguments}: {bytes} bytes"
    );
    assert!(
        !result.content.contains("hidden"),
        "{name} {arguments}: {}",
        result.content
    );
    result
}

/// Columns: tool, arguments as JSON, true if it fails, part of the result.
type ToolCase<'a> = (&'a str, &'a str, bool, &'a str);

fn check(tools: &FilesTools, cases: &[ToolCase<'_>]) {
    for (name, arguments, failed, word) in cases {
        let result = call_text(tools, name, arguments);
        let right = result.failed == *failed && result.content.contains(word);
        assert!(
            right,
            "{name} {arguments}: failed {}, {:?}",
            result.failed, result.content
        );
    }
}

/// Checks that each of the three tools refuses the path.
fn check_path(tools: &FilesTools, path: &str, word: &str) {
    let plain = json!({"path": path}).to_string();
    let search = json!({"path": path, "pattern": "x"}).to_string();
    check(
        tools,
        &[
            ("read_file", &plain, true, word),
            ("list_files", &plain, true, word),
            ("search_files", &search, true, word),
        ],
    );
}

fn check_exact(tools: &FilesTools, name: &str, arguments: serde_json::Value, expected: &str) {
    let result = call(tools, name, arguments.clone());
    assert_eq!(result, ToolResult::ok(expected), "{name} {arguments}");
}

const ROOT: &str = "a.txt (13 bytes)\nempty (0 bytes)\nlatin (5 bytes)\nsrc/\n";

/// Columns: tool, arguments, whole result.
const SHOWN: &[(&str, &str, &str)] = &[
    ("read_file", r#"{"path": "a.txt"}"#, "one\ntwo\nthree"),
    (
        "read_file",
        r#"{"path": "./a.txt", "offset": 2, "limit": null}"#,
        "two\nthree",
    ),
    ("read_file", r#"{"path": "a.txt", "offset": 3}"#, "three"),
    (
        "read_file",
        r#"{"path": "a.txt", "offset": 2, "limit": 1}"#,
        "two\n[lines 2 to 2 of a file of 13 bytes; go on with offset 3]",
    ),
    ("read_file", r#"{"path": "empty"}"#, "[the file is empty]"),
    (
        "read_file",
        r#"{"path": "src/main.rs", "limit": 3}"#,
        "fn main() {\r\n    // TODO\r\n}\r\n",
    ),
    (
        "read_file",
        r#"{"path": "latin"}"#,
        "caf\u{fffd}\n[bytes that are not UTF-8 are shown as \u{fffd}]",
    ),
    ("list_files", "{}", ROOT),
    ("list_files", r#"{"path": ""}"#, ROOT),
    ("list_files", r#"{"path": "."}"#, ROOT),
    ("list_files", r#"{"path": "./"}"#, ROOT),
    (
        "list_files",
        r#"{"path": "src/", "depth": 2}"#,
        "src/lib/\nsrc/lib/x.rs (5 bytes)\nsrc/main.rs (29 bytes)\n",
    ),
    (
        "search_files",
        r#"{"pattern": "TODO"}"#,
        "src/main.rs:2:     // TODO\n",
    ),
    (
        "search_files",
        r#"{"pattern": "(?i)^ *(//)? *todo$", "regex": true}"#,
        "src/lib/x.rs:1: todo\nsrc/main.rs:2:     // TODO\n",
    ),
    (
        "search_files",
        r#"{"pattern": "t", "path": "a.txt", "max": 2}"#,
        "a.txt:2: two\na.txt:3: three\n",
    ),
    (
        "search_files",
        r#"{"pattern": "a.b"}"#,
        "[nothing was found]",
    ),
    (
        "search_files",
        r#"{"pattern": "caf"}"#,
        "latin:1: caf\u{fffd}\n",
    ),
];

#[test]
fn what_they_show() {
    let (_temp, tools) = grant(&[
        ("a.txt", b"one\ntwo\nthree"),
        ("empty", b""),
        ("src/main.rs", b"fn main() {\r\n    // TODO\r\n}\r\n"),
        ("src/lib/x.rs", b"todo\n"),
        ("latin", b"caf\xe9\n"),
    ]);
    for (name, arguments, expected) in SHOWN {
        let result = call_text(&tools, name, arguments);
        assert_eq!(result, ToolResult::ok(*expected), "{name} {arguments}");
    }
}

/// Columns: tool, arguments, part of the result.
const REFUSED: &[(&str, &str, &str)] = &[
    ("read_files", "{}", "did you mean \"read_file\"?"),
    ("delete", "{}", "no tool of this name"),
    ("read_file", "", "must be a JSON object"),
    ("read_file", "{", "must be a JSON object"),
    (
        "read_file",
        "[]",
        "must be a JSON object with the keys path, offset, limit",
    ),
    ("read_file", r#""a.txt""#, "must be a JSON object"),
    ("read_file", "{}", "path is missing"),
    ("read_file", r#"{"path": ""}"#, "path is missing"),
    ("read_file", r#"{"path": 5}"#, "path must be a string"),
    (
        "read_file",
        r#"{"pth": "a.txt"}"#,
        "\"pth\" is not an argument; did you mean \"path\"?",
    ),
    (
        "read_file",
        r#"{"path": "a.txt", "offset": 0}"#,
        "offset must be a whole number from 1",
    ),
    (
        "read_file",
        r#"{"path": "a.txt", "offset": "2"}"#,
        "offset must be a whole number",
    ),
    (
        "read_file",
        r#"{"path": "a.txt", "offset": 1.5}"#,
        "offset must be a whole number",
    ),
    (
        "read_file",
        r#"{"path": "a.txt", "offset": -1}"#,
        "offset must be a whole number",
    ),
    (
        "read_file",
        r#"{"path": "a.txt", "offset": 3}"#,
        "has 1 lines",
    ),
    (
        "read_file",
        r#"{"path": "a.txt", "limit": 10001}"#,
        "from 1 to 10000",
    ),
    (
        "read_file",
        r#"{"path": "src"}"#,
        "is a directory; list_files",
    ),
    ("read_file", r#"{"path": "a.txt/"}"#, "is a file"),
    ("read_file", r#"{"path": "a.txt/b"}"#, "is not a directory"),
    (
        "read_file",
        r#"{"path": "none"}"#,
        "list_files shows what there is",
    ),
    ("list_files", r#"{"path": "a.txt"}"#, "is a file; read_file"),
    ("list_files", r#"{"depth": 9}"#, "from 1 to 8"),
    ("search_files", "{}", "pattern is missing"),
    ("search_files", r#"{"pattern": ""}"#, "pattern is missing"),
    (
        "search_files",
        r#"{"pattern": "a\nb"}"#,
        "one line at a time",
    ),
    (
        "search_files",
        r#"{"pattern": "x", "regex": "yes"}"#,
        "true or false",
    ),
    (
        "search_files",
        r#"{"pattern": "(", "regex": true}"#,
        "not a regular expression",
    ),
    (
        "search_files",
        r#"{"pattern": "((a{1000}){1000}){1000}", "regex": true}"#,
        "not a regular expression",
    ),
    (
        "search_files",
        r#"{"pattern": "x", "max": 201}"#,
        "from 1 to 200",
    ),
    (
        "search_files",
        r#"{"pattern": "x", "path": "none"}"#,
        "there is no \"none\"",
    ),
];

#[test]
fn arguments_that_are_refused() {
    let (_temp, tools) = grant(&[("a.txt", b"one\n"), ("src/x", b"x")]);
    for (name, arguments, word) in REFUSED {
        check(&tools, &[(name, arguments, true, word)]);
    }
    let pattern = json!({"pattern": "x".repeat(1_025)}).to_string();
    let path = json!({"path": "x".repeat(ARGUMENTS_BYTES_MAX)}).to_string();
    check(
        &tools,
        &[("search_files", &pattern, true, "longer than 1024 bytes")],
    );
    check(
        &tools,
        &[("read_file", &path, true, "arguments are longer than")],
    );
}

#[test]
fn what_the_catalog_says() {
    let (_temp, tools) = grant(&[]);
    let names: Vec<String> = tools.catalog().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["list_files", "read_file", "search_files"]);
    for tool in tools.catalog() {
        let schema: serde_json::Value = serde_json::from_str(&tool.schema).expect("JSON");
        assert_eq!(
            schema["additionalProperties"],
            json!(false),
            "{}",
            tool.name
        );
        assert!(tool.idempotent && !tool.consent);
    }
}

#[test]
fn a_dropped_call_is_told_to_stop() {
    let stop = StopFlag::default();
    drop(StopOnDrop(stop.clone()));
    let (_temp, tools) = grant(&[("a", b"x\n")]);
    let answer = |name: &str, arguments: &str| {
        let tool = find_file_tool(name).expect("a tool");
        match tool.run(&tools.grant, arguments, &stop).expect("an answer") {
            FileAnswer::Text(text) => text,
            FileAnswer::Image(line, _) => line,
        }
    };
    let found = answer("search_files", r#"{"pattern":"x"}"#);
    assert_eq!(found, "[nothing was found]");
    // No entry is looked at.
    assert_eq!(answer("list_files", "{}"), "[the directory is empty]");
    assert!(bound_result("é".repeat(RESULT_BYTES_MAX)).len() <= RESULT_BYTES_MAX);
}
