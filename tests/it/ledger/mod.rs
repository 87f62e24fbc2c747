//! The budget ledger against known faults of other systems, and against wrong requests. Faults of
//! the original and of its peers have the numbers of the study of each.

mod family;
mod interface;
mod originals;
mod peers;
mod shared;
mod spawned;
mod time;
