//! The `threadkeep` command as people and programs use it: real processes on real directories.

mod budget;
mod chat;
mod commands;
mod doctor;
#[cfg(target_os = "linux")]
mod ends;
pub(crate) mod fixture;
mod interrupts;
mod json;
mod newcomer;
mod refusals;
mod together;
mod tree;
#[cfg(unix)]
mod trees;
mod upkeep;
