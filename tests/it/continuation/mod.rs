//! Threads that are handed off to the next link of their chain because the window of their model
//! is nearly full.

mod crashed_children;
mod crashes;
mod driven_runs;
mod failed_summaries;
pub mod fixture;
mod hand_offs;
mod handed_off_tree;
mod late_usage;
mod limits;
mod long_conversation;
mod loop_guard;
mod money;
mod signals_at_commit;
pub mod summaries;
mod trees;
