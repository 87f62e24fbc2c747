//! The bundle under the stock command `wasmtime`: what its page says, refusals, models over HTTP,
//! and a store that it shares with native processes.

mod commands;
mod documents;
mod file_tools;
mod full_disk;
mod images;
mod killed_bundles;
mod library_files;
mod page;
mod providers;
mod refusals;
mod shared_store;
mod stock_command;
mod writers_at_once;
