//! `guest/build/share.rs` is part of a build script, which runs no tests: its tests run here.

#[path = "../../../guest/build/share.rs"]
mod share;
