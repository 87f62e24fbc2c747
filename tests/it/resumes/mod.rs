//! Threads that are resumed: in place, or in a successor if they have ended.

mod children;
mod crashes;
mod driven;
pub mod fixture;
mod money;
mod names;
mod owed_sweeps;
mod random_sequences;
mod repeated_requests;
mod statuses;
mod successors;
mod tips;
