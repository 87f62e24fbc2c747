//! Skipped parts and their reasons: one line each, and in CI a failure.
//!
//! A test skips itself by printing a line `skipped: <what is missing>`; it then counts as skipped,
//! not as passed.

use crate::process;
use anyhow::{Result, bail};

/// The beginning of such a line.
pub const PREFIX: &str = "skipped: ";

/// The skipped parts, in the order of their discovery.
#[derive(Debug, Default)]
pub struct SkippedParts(Vec<String>);

impl SkippedParts {
    /// Adds a skipped part.
    pub fn add(&mut self, what: String) {
        self.0.push(what);
    }

    /// Returns the number of skipped parts.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Prints one line for each skipped part.
    pub fn print(&self) {
        for what in &self.0 {
            println!("{PREFIX}{what}");
        }
    }

    /// Returns an error in CI if any part was skipped: nothing is optional there.
    pub fn fail_in_ci(&self) -> Result<()> {
        if process::in_ci() && !self.0.is_empty() {
            bail!("{} skipped, and CI=true allows none", self.0.len());
        }
        Ok(())
    }
}
