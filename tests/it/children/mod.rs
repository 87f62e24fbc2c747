//! Child threads: spawned, waited for, sent messages and ended by the runner's own tools.

mod bad_trees;
mod child_messages;
mod child_results;
mod crashes;
mod driven_trees;
mod due_threads;
mod ends_and_caps;
pub mod fixture;
mod interrupted_waits;
mod kills;
mod llmock;
mod many_children;
mod races;
mod random_forest;
mod random_requests;
mod random_trees;
mod refused_calls;
mod regressions;
mod rest_checks;
mod revivals;
mod scripted_tree;
mod shared_budget;
mod spawns;
mod suspended_waits;
mod thread_signals;
mod unreadable_records;
mod waits;
