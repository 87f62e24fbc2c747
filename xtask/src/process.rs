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
pub fn cargo() -> Command {
    program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
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
