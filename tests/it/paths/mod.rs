//! Names and files that lead to forbidden places, at every entry that takes a name from outside and
//! at every place where a file may be planted: nothing there is read, written or removed.

mod cli;
mod component_exports;
mod file_modes;
mod fixture;
mod host;
#[cfg(unix)]
mod locks;
mod planted_objects;
mod swapped_directories;
