//! `cargo xtask check systems`: the native program for macOS and Windows, checked and not linked.
//!
//! SQLite and ring compile C in their build scripts. Zig, a package of PyPI, has a compiler of C
//! and the headers of all systems, so no SDK is needed. A compiler that is started as cc-rs does it
//! gets the name of the target in the way of LLVM, which Zig does not know: a script in between
//! says it in Zig's way.

use crate::skips::SkippedParts;
use crate::{component, paths, process, setup};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The systems: their targets in the words of Rust and of Zig.
const SYSTEMS: [(&str, &str); 2] = [
    ("x86_64-pc-windows-gnu", "x86_64-windows-gnu"),
    ("aarch64-apple-darwin", "aarch64-macos"),
];

/// The script: passes everything on to Zig but what names the target or an SDK.
const SCRIPT: &str = r#"#!/bin/sh
skip=0
for argument do
  shift
  if [ "$skip" = 1 ]; then skip=0; continue; fi
  case "$argument" in
    --target=*|-mmacosx-version-min=*) ;;
    -arch|-isysroot|-target) skip=1 ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec PYTHON -m ziglang TOOL "$@"
"#;

/// Checks the native program for each system; without Zig each is named and skipped.
pub fn check(skips: &mut SkippedParts) -> Result<()> {
    let python = ["python3", "python"].into_iter().find(|python| {
        let mut zig = process::program(python);
        process::output(zig.args(["-m", "ziglang", "version"])).is_some()
    });
    let Some(python) = python.filter(|_| cfg!(unix)) else {
        for (target, _) in SYSTEMS {
            skips.add(format!("the program for {target}: `pip install ziglang`"));
        }
        return Ok(());
    };
    setup::run()?;
    component::build()?;
    for (target, zig_target) in SYSTEMS {
        println!("the program for {target}");
        setup::add_target(target)?;
        let scripts = paths::target_dir()?.join("zig").join(target);
        let cc = write_script(&scripts, "cc", python, &format!("cc -target {zig_target}"))?;
        let ar = write_script(&scripts, "ar", python, "ar")?;
        let name = target.replace('-', "_");
        let mut check = process::locked_cargo("check");
        check
            .args(["--package", "threadkeep", "--target", target])
            .env(format!("CC_{name}"), cc)
            .env(format!("AR_{name}"), ar)
            // No SDK is looked for: Zig has the headers.
            .env("SDKROOT", &scripts);
        process::run(&mut check)?;
    }
    Ok(())
}

fn write_script(folder: &Path, name: &str, python: &str, tool: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    let text = SCRIPT.replace("PYTHON", python).replace("TOOL", tool);
    // An unchanged script leaves what was built with it as it is.
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(path);
    }
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(&path, &text)?;
        make_executable(&path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}
