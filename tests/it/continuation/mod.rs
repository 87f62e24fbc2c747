//! Threads that are handed off to the next link of their chain because the window of their model
//! is nearly full.

mod crashed_children;
mod crashed_parents;
mod crashed_summaries;
mod crashes;
mod driven_runs;
mod failed_summaries;
mod first_and_last;
pub mod fixture;
mod hand_offs;
mod handed_off_tree;
mod large_resumes;
mod late_usage;
mod limits;
mod long_conversation;
mod loop_guard;
mod money;
mod plans;
mod signals_at_commit;
pub mod summaries;
mod trees;
