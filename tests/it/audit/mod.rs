//! The audit: it finds nothing in a sound store that has every kind of record, and finds every
//! violation that is planted there.

mod child_records;
mod cli;
mod documents;
pub(crate) mod fixture;
mod live_stores;
mod open_bases;
mod planted_chains;
mod planted_indexes;
mod planted_violations;
mod swapped_histories;
