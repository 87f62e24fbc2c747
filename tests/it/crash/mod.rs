//! Death at every commit: nothing acknowledged is lost, nothing happens twice, and the thread can
//! go on.

mod commit_points;
pub mod kills;
mod states_and_blobs;
