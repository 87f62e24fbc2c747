//! Runs every program of the guide as a reader runs it, in a copy of `project/`, and compares its
//! output with docs/embedding.md, word for word.

use std::path::{Path, PathBuf};
use std::process::Command;

const GUIDE: &str = include_str!("../../../docs/embedding.md");

/// Creates a fresh folder with a copy of the project in it.
fn fresh_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("project"),
        &folder.join("project"),
    );
    folder
}

/// Copies the sources of a project, without the records that a run of the developer left in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry
            .map(|entry| (entry.path(), entry.file_name()))
            .unwrap();
        if path.is_file() {
            std::fs::copy(&path, to.join(name)).unwrap();
        } else if name != "threads" {
            copy(&path, &to.join(name));
        }
    }
}

/// Returns the output that the guide shows for a command.
fn expected_output(command: &str) -> String {
    let blocks = GUIDE.split("```console\n").skip(1);
    let commands = blocks.filter_map(|rest| rest.split("```").next());
    let mut parts = commands.flat_map(|block| block.split("$ ").skip(1));
    parts
        .find_map(|part| part.strip_prefix(command)?.strip_prefix('\n'))
        .unwrap_or_else(|| panic!("the guide does not run `{command}`"))
        .to_owned()
}

fn check_output(binary: &str, command: &str, name: &str) {
    let output = Command::new(binary)
        .current_dir(fresh_folder(name))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let failed = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}{failed}");
    assert_eq!(said, expected_output(command), "$ {command}\n{failed}");
}

#[test]
fn the_first_program() {
    check_output(env!("CARGO_BIN_EXE_embedder"), "cargo run", "first");
}

#[test]
fn everything_of_ones_own() {
    check_output(env!("CARGO_BIN_EXE_own"), "cargo run --bin own", "own");
}

#[test]
fn in_an_engine_that_is_there_already() {
    check_output(
        env!("CARGO_BIN_EXE_linker"),
        "cargo run --bin linker",
        "linker",
    );
}

#[test]
fn a_loop_of_ones_own() {
    check_output(
        env!("CARGO_BIN_EXE_append"),
        "cargo run --bin append",
        "append",
    );
}
