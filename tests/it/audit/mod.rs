//! The audit: it finds nothing in a sound store that has every kind of record, and finds every
//! violation that is planted there.

mod cli;
mod documents;
mod family;
mod live;
mod planted;
pub(crate) mod world;
