//! Starts other programs: cargo, rustup, rustc. A failure names the command and its exit status.

use crate::paths;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns true in continuous integration, where a missing part is a failure and the lock file must
/// fit.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The cargo that started this binary, in the checkout.
///
/// It does not see which package this binary is of: crates with C code ask for those variables, and
/// would be built anew whenever cargo is started from another place.
pub fn cargo() -> Command {
    let mut cargo = program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if names_a_package(&name) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// True for the variables by which cargo tells a program of which package it is.
fn names_a_package(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// A cargo command that reads the lock file, which must be up to date in CI.
pub fn locked_cargo(command: &str) -> Command {
    let mut cargo = cargo();
    cargo.arg(command);
    if in_ci() {
        cargo.arg("--locked");
    }
    cargo
}

/// Any program, started in the checkout.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(paths::root());
    command
}

/// Runs a command to its end with the terminal's own output; anything but success is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", describe_command(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", describe_command(command));
    }
    Ok(())
}

/// Returns the trimmed output of a command; `None` if it cannot be started or fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn describe_command(command: &Command) -> String {
    let name = PathBuf::from(command.get_program());
    let name = name
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned();
    command
        .get_args()
        .fold(format!("`{name}"), |line, argument| {
            line + " " + &argument.to_string_lossy()
        })
        + "`"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_does_not_see_the_package_that_starts_it() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let cargo = cargo();
        let mut removed = cargo.get_envs().filter(|(_, value)| value.is_none());
        assert!(removed.any(|(name, _)| name == "CARGO_PKG_NAME"));
    }
}
