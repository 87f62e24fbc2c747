//! docs/embedding.md against the crate that it describes: the code in the guide is the code that is
//! compiled and run.
//!
//! A block whose info string names a path is a part of that file of `examples/embedder`, line for
//! line; indentation alone may differ. The programs themselves are run by `cargo xtask check
//! outside`, which compares their output with the guide's `console` blocks.

use crate::readme::blocks;
use std::path::Path;

const GUIDE: &str = include_str!("../../docs/embedding.md");

/// Returns the problems of a guide's blocks, given the text of the crate's files.
fn problems(guide: &str, file: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for block in blocks(guide) {
        let begin = block.text.lines().next().unwrap_or_default();
        match block.info.split_once(' ') {
            Some((_, path)) => match file(path) {
                None => problems.push(format!("{path}: the crate has no such file")),
                Some(text) if !holds(&text, &block.text) => {
                    problems.push(format!("{path}: does not hold the block at {begin:?}"));
                }
                Some(_) => {}
            },
            None if ["console", "sh", "text"].contains(&block.info.as_str()) => {}
            None => problems.push(format!(
                "the {} block at {begin:?} names no file",
                block.info
            )),
        }
    }
    problems
}

/// Returns true if the lines of `part` stand in `text`, one after the other.
fn holds(text: &str, part: &str) -> bool {
    let lines =
        |text: &str| -> Vec<String> { text.lines().map(|line| line.trim().to_owned()).collect() };
    let (text, part) = (lines(text), lines(part));
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

#[test]
fn the_guide_shows_what_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/embedder");
    let problems = problems(GUIDE, |path| std::fs::read_to_string(root.join(path)).ok());
    assert!(problems.is_empty(), "{problems:#?}");
    let shown = blocks(GUIDE)
        .iter()
        .filter(|block| block.info.starts_with("rust "))
        .count();
    assert!(shown >= 10, "the guide shows {shown} pieces of code");
}

#[test]
fn a_guide_that_drifts_is_found() {
    let file = |path: &str| {
        (path == "src/a.rs").then(|| "fn a() {\n    one();\n    two();\n}\n".to_owned())
    };
    for (guide, count) in [
        ("```rust src/a.rs\none();\ntwo();\n```\n", 0),
        ("```rust src/a.rs\none();\nthree();\n```\n", 1),
        ("```rust src/a.rs\none();\n}\n```\n", 1),
        ("```rust src/a.rs\n```\n", 1),
        ("```rust src/b.rs\none();\n```\n", 1),
        ("```rust\none();\n```\n```console\n$ x\n```\n", 1),
    ] {
        assert_eq!(problems(guide, file).len(), count, "{guide}");
    }
}
