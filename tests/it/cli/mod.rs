//! The `threadkeep` command as people and programs use it: real processes on real directories.

mod commands;
mod doctor;
pub(crate) mod fixture;
mod interrupts;
mod refusals;
mod together;
mod upkeep;
