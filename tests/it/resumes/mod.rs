//! Threads that are resumed: in place, or in a successor if they have ended.

mod children;
mod crashes;
mod fixture;
mod money;
mod repeated_requests;
mod statuses;
mod successors;
