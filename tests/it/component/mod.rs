//! Runs through the component and the driver, over real stores, scripted models and a real model
//! server.

mod after_run;
mod commit_notices;
mod concurrent_runs;
mod contract;
mod coordination;
mod dropped_runs;
mod embedder_guarantees;
pub(crate) mod fixture;
pub(crate) mod foreign_host;
mod fresh_instances;
mod handed_off_runs;
mod host_answers;
mod imports;
mod kept_conversations;
mod library_answers;
mod limits;
mod llmock;
mod paid_replies;
pub(crate) mod project;
mod run_queue;
mod runs;
mod thinking_blocks;
mod tool_costs;
mod unreadable_stores;
mod unusual_text;
