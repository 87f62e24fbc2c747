//! Death at every commit: nothing acknowledged is lost, nothing happens twice, and the thread can
//! go on.

pub mod kills;
mod points;
