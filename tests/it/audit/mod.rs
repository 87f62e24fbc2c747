//! The audit: nothing in a store where everything has happened, and every violation that is planted there.

mod cli;
mod documents;
mod family;
mod live;
mod planted;
pub(crate) mod world;
