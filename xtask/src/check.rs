//! `cargo xtask check`: formatting, clippy, cargo-deny by deny.toml, the checks of `embed` for
//! embedders, and those of `systems`.
//!
//! Advisories are checked against a snapshot of the RustSec database in a folder beside the
//! checkout, if there is one. No database is fetched: the same commit gets the same answer on any
//! day.

use crate::skips::SkippedParts;
use crate::{component, embed, paths, process, setup, systems};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The version of cargo-deny that deny.toml is written for. `.ci/run` installs it.
const DENY_VERSION: &str = "0.20.2";

/// The path of the snapshot from the checkout.
const SNAPSHOT: &str = "../shared/advisory-db";

/// The folder in which cargo-deny 0.20 keeps the default database: the last part of its address,
/// and a hash of it.
const DATABASE_FOLDER: &str = "advisory-db-3157b0e258782691";

/// Every check, the quick ones first.
const ALL: [&str; 7] = [
    "fmt", "clippy", "deny", "features", "outside", "package", "systems",
];

/// Runs the named checks; without a name, all of them.
pub fn run(steps: &[String]) -> Result<()> {
    let all = ALL.map(String::from);
    let steps = if steps.is_empty() { &all[..] } else { steps };
    let mut skips = SkippedParts::default();
    for step in steps {
        match step.as_str() {
            "fmt" => fmt()?,
            "clippy" => clippy()?,
            "deny" => deny(&mut skips)?,
            "features" => embed::check_features()?,
            "outside" => embed::check_guide_crate()?,
            "package" => embed::check_package()?,
            "systems" => systems::check(&mut skips)?,
            other => bail!("there is no check `{other}`: {}", ALL.join(", ")),
        }
    }
    skips.print();
    skips.fail_in_ci()
}

fn fmt() -> Result<()> {
    process::run(process::cargo().args(["fmt", "--all", "--check"]))
        .context("run `cargo fmt --all` and look at what it changed")
}

/// Runs clippy. The host contains the component, so the component is built first.
fn clippy() -> Result<()> {
    setup::run()?;
    component::build()?;
    let mut cargo = process::locked_cargo("clippy");
    process::run(cargo.args(["--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn deny(skips: &mut SkippedParts) -> Result<()> {
    let version = process::output(process::cargo().args(["deny", "--version"]));
    if version.is_none_or(|version| !version.ends_with(DENY_VERSION)) {
        skips.add(format!(
            "bans, licences, sources and advisories: run `cargo install --locked \
             cargo-deny@{DENY_VERSION}`"
        ));
        return Ok(());
    }
    process::run(process::cargo().args(["deny", "check", "bans", "licenses", "sources"]))?;
    advisories()
}

/// Checks advisories. The snapshot is no part of the product: without it, only a line says so.
fn advisories() -> Result<()> {
    let snapshot = paths::root().join(SNAPSHOT);
    if !snapshot.join("crates").is_dir() {
        println!("no advisories were checked: there is no snapshot at {SNAPSHOT}");
        return Ok(());
    }
    let databases = prepare_databases(&snapshot)?;
    let mut deny = process::cargo();
    deny.env("THREADKEEP_ADVISORY_DATABASES", &databases);
    process::run(deny.args(["deny", "--offline", "check", "advisories"]))
}

/// Prepares a folder of databases that points to the snapshot, and returns it: cargo-deny wants a
/// checkout with a fresh `FETCH_HEAD`, under a name of its own choice. The age of the snapshot is
/// not checked.
fn prepare_databases(snapshot: &Path) -> Result<PathBuf> {
    let databases = paths::target_dir()?.join("advisory-databases");
    let database = databases.join(DATABASE_FOLDER);
    let create = || -> std::io::Result<()> {
        if database.exists() {
            std::fs::remove_dir_all(&database)?;
        }
        std::fs::create_dir_all(database.join(".git"))?;
        std::fs::write(database.join(".git").join("FETCH_HEAD"), "")?;
        link(
            &snapshot.canonicalize()?.join("crates"),
            &database.join("crates"),
        )
    };
    create().with_context(|| format!("cannot prepare {}", database.display()))?;
    Ok(databases)
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

#[cfg(windows)]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    std::os::windows::fs::symlink_dir(from, to)
}
