//! The tour of README.md: its files are written, its commands run, and their output compared, word
//! for word.
//!
//! A fenced block whose info string names a path is a file; a `console` block holds commands after
//! `$ ` and their combined output.

use std::path::Path;
use std::process::Command;

/// A fenced block.
pub(crate) struct FencedBlock {
    /// Text behind the opening fence.
    pub(crate) info: String,
    /// Its lines.
    pub(crate) text: String,
}

/// Every fenced block, in order.
pub(crate) fn blocks(markdown: &str) -> Vec<FencedBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<FencedBlock> = None;
    for line in markdown.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                open = Some(FencedBlock {
                    info: info.to_owned(),
                    text: String::new(),
                })
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Runs a command and returns both outputs through one pipe, so that their order is the one that a
/// person sees.
fn run(directory: &Path, binary: &Path, command: &str) -> String {
    assert!(command.contains("threadkeep "), "the tour calls threadkeep");
    let call = format!("'{}' ", binary.display());
    let line = format!("{} 2>&1", command.replacen("threadkeep ", &call, 1));
    let mut shell = Command::new("sh");
    // The tour has no key.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().ends_with("_API_KEY") {
            shell.env_remove(name);
        }
    }
    let output = shell
        .arg("-c")
        .arg(line)
        .current_dir(directory)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_tour_does_what_it_says() {
    let binary = threadkeep_tests::binary::path();
    let readme = include_str!("../../README.md");
    let temporary = tempfile::tempdir().unwrap();
    let mut commands = 0;
    for block in blocks(readme) {
        if let Some((_, path)) = block.info.split_once(' ') {
            let path = temporary.path().join(path);
            // What a command has written is shown as it is; a model table is put in its place.
            if path.exists() && block.info.starts_with("markdown ") {
                assert_eq!(std::fs::read_to_string(&path).unwrap(), block.text);
            }
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &block.text).unwrap();
        }
        if block.info != "console" {
            continue;
        }
        let mut expected = block.text.split("$ ").skip(1);
        for part in &mut expected {
            let (command, output) = part.split_once('\n').unwrap();
            assert_eq!(
                run(temporary.path(), binary, command),
                output,
                "$ {command}"
            );
            commands += 1;
        }
    }
    assert!(commands >= 6, "the tour has {commands} commands");
}
