//! The rules of plain words, for `cargo xtask words` and for the tests of `tidy`.

pub mod rust_text;
pub mod words;
