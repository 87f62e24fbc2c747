//! The `threadkeep` command as people and programs use it: real processes on real directories.

mod budget;
mod chat;
mod commands;
mod damage;
mod doctor;
#[cfg(target_os = "linux")]
mod ends;
pub(crate) mod fixture;
mod hidden_controls;
mod interrupts;
mod json;
mod newcomer;
#[cfg(target_os = "linux")]
mod read_only;
mod refusals;
mod together;
mod tree;
#[cfg(unix)]
mod trees;
mod upkeep;
