//! `cargo xtask check`: formatting, clippy, cargo-deny with what deny.toml says, and what `embed` checks for embedders.
//!
//! Advisories are checked against a snapshot of the RustSec database in a folder beside the checkout, where there is
//! one, and nothing is fetched: the same commit gets the same answer on any day.

use crate::skips::Skips;
use crate::{component, embed, paths, process, setup};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The cargo-deny that deny.toml is written for. `.ci/run` installs this one.
const DENY_VERSION: &str = "0.20.2";

/// Where the snapshot is, seen from the checkout.
const SNAPSHOT: &str = "../shared/advisory-db";

/// The folder that cargo-deny 0.20 keeps the default database in: the last part of its address, and a hash of it.
const DATABASE_FOLDER: &str = "advisory-db-3157b0e258782691";

/// Every check, the quick ones first.
const ALL: [&str; 6] = ["fmt", "clippy", "deny", "features", "outside", "package"];

/// The checks by name; without a name, all of them.
pub fn run(steps: &[String]) -> Result<()> {
    let all = ALL.map(String::from);
    let steps = if steps.is_empty() { &all[..] } else { steps };
    let mut skips = Skips::default();
    for step in steps {
        match step.as_str() {
            "fmt" => fmt()?,
            "clippy" => clippy()?,
            "deny" => deny(&mut skips)?,
            "features" => embed::features()?,
            "outside" => embed::outside()?,
            "package" => embed::package()?,
            other => bail!("there is no check `{other}`: {}", ALL.join(", ")),
        }
    }
    skips.print();
    skips.judge()
}

fn fmt() -> Result<()> {
    process::run(process::cargo().args(["fmt", "--all", "--check"]))
        .context("run `cargo fmt --all` and look at what it changed")
}

/// The host contains the component, so that comes first.
fn clippy() -> Result<()> {
    setup::run()?;
    component::run()?;
    let mut cargo = process::locked_cargo("clippy");
    process::run(cargo.args(["--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn deny(skips: &mut Skips) -> Result<()> {
    let version = process::output(process::cargo().args(["deny", "--version"]));
    if version.is_none_or(|version| !version.ends_with(DENY_VERSION)) {
        skips.add(format!(
            "bans, licences, sources and advisories: run `cargo install --locked cargo-deny@{DENY_VERSION}`"
        ));
        return Ok(());
    }
    process::run(process::cargo().args(["deny", "check", "bans", "licenses", "sources"]))?;
    advisories()
}

/// The snapshot is no part of the product: where it is not there, that is said and nothing more.
fn advisories() -> Result<()> {
    let snapshot = paths::root().join(SNAPSHOT);
    if !snapshot.join("crates").is_dir() {
        println!("no advisories were checked: there is no snapshot at {SNAPSHOT}");
        return Ok(());
    }
    let databases = lay_out(&snapshot)?;
    let mut deny = process::cargo();
    deny.env("THREADKEEP_ADVISORY_DATABASES", &databases);
    process::run(deny.args(["deny", "--offline", "check", "advisories"]))
}

/// cargo-deny wants a checkout with a fresh `FETCH_HEAD`, under a name of its own choice. This makes one that points to
/// the snapshot, and gives the folder that contains it. The age of the snapshot is its keeper's affair, not ours.
fn lay_out(snapshot: &Path) -> Result<PathBuf> {
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
