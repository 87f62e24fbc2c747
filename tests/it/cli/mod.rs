//! The `threadkeep` command as people and programs use it: real processes on real directories.

mod advice;
mod budget;
mod chains;
mod chat;
mod commands;
#[cfg(unix)]
mod completions;
mod coordination;
mod copies;
mod damaged_records;
mod doctor;
#[cfg(unix)]
mod first_hour;
pub(crate) mod fixture;
mod forks;
mod hidden_controls;
mod html_pages;
mod imports;
mod init;
#[cfg(unix)]
mod interrupted_hand_offs;
mod interrupts;
#[cfg(target_os = "linux")]
mod io_failures;
mod json;
mod parallel_processes;
mod plain_files;
#[cfg(target_os = "linux")]
mod read_only;
mod recover_and_repair;
mod refusals;
#[cfg(unix)]
mod resumes;
mod state_files;
mod states;
#[cfg(unix)]
mod terminal_chat;
mod thread_names;
#[cfg(unix)]
mod top_screen;
mod tree_command;
#[cfg(unix)]
mod tree_processes;
mod usage_cache;
mod user_mistakes;
mod views;
