//! docs/bundle.md: its files are written, its commands run, and their output compared.

use super::stock_command::{BundleProject, OFFLINE, ONLINE, bundle_path};
use crate::readme::blocks;
use std::process::Command;

#[test]
fn the_page_does_what_it_says() {
    let Some(BundleProject { project }) = BundleProject::new() else {
        return;
    };
    for file in [ONLINE, OFFLINE] {
        std::fs::copy(bundle_path(file), project.path().join(file)).unwrap();
    }
    let binary = threadkeep_tests::binary::path();
    let folder = binary.parent().unwrap().to_str().unwrap();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let mut commands = 0;
    for block in blocks(include_str!("../../../docs/bundle.md")) {
        if block.info != "console" {
            project.write(&block.info, &block.text);
            continue;
        }
        for part in block.text.split("$ ").filter(|part| !part.is_empty()) {
            let (command, expected) = part.split_once('\n').unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{command} 2>&1")]);
            let output = shell
                .current_dir(project.path())
                .env("PATH", &path)
                .output();
            let output = String::from_utf8(output.unwrap().stdout).unwrap();
            assert_eq!(output, expected, "{command}");
            commands += 1;
        }
    }
    assert!(commands >= 5, "the page has commands");
}
