//! Child threads: spawned, waited for, told something and ended by the tools of the runner's own.

mod answers;
mod asked;
mod crashes;
mod crowds;
mod grove;
mod interrupted;
mod kills;
mod llmock;
mod property;
mod races;
mod regressions;
mod requests;
mod rest;
mod revivals;
mod spawns;
mod tells;
mod told;
mod trees;
mod waits;
mod wild;
pub mod world;
