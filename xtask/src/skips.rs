//! What was left out, and why: one line each, and in CI a failure.
//!
//! A test says so by printing a line `skipped: <what is missing>`, and then counts as skipped, not as passed.

use crate::process;
use anyhow::{Result, bail};

/// How such a line begins.
pub const PREFIX: &str = "skipped: ";

/// Parts that were left out, in the order of their discovery.
#[derive(Debug, Default)]
pub struct Skips(Vec<String>);

impl Skips {
    /// Name one.
    pub fn add(&mut self, what: String) {
        self.0.push(what);
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// One line each, as a person reads them.
    pub fn print(&self) {
        for what in &self.0 {
            println!("{PREFIX}{what}");
        }
    }

    /// An error in CI if there is any: nothing is optional there.
    pub fn judge(&self) -> Result<()> {
        if process::in_ci() && !self.0.is_empty() {
            bail!("{} skipped, and CI=true allows none", self.0.len());
        }
        Ok(())
    }
}
