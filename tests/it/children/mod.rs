//! Child threads: spawned, waited for, told something and ended by the tools of the runner's own.

mod crowds;
mod grove;
mod llmock;
mod races;
mod regressions;
mod spawns;
mod tells;
mod trees;
mod waits;
pub mod world;
