//! Calls that need consent: who is asked, what decisions do, and what is never run twice.

mod action_table;
mod asked_calls;
mod builtin_calls;
pub mod commands;
mod crashes;
mod decisions;
mod fixture;
mod llmock;
mod mistakes;
mod tool_sets;
