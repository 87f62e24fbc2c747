//! Child threads: spawned, waited for, sent messages and ended by the runner's own tools.

mod answers;
mod asked;
mod bad_trees;
mod crashes;
mod crowds;
mod due;
mod ends_and_caps;
mod grove;
mod interrupted;
mod kills;
mod llmock;
mod neighbours;
mod property;
mod purse;
mod races;
mod regressions;
mod requests;
mod rest;
mod revivals;
mod spawns;
mod suspended_waits;
mod tells;
mod told;
mod trees;
mod waits;
mod wild;
pub mod world;
