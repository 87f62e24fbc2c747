//! Names and files that lead where nothing may be read, written or removed, at every entry that takes a name from
//! outside and at every place where something may be planted.

mod cli;
mod host;
#[cfg(unix)]
mod locks;
mod planted;
mod private;
mod races;
mod threads;
mod world;
