//! The one test binary of Threadkeep. Each module is one kind of evidence.

mod component;
mod conformance;
mod crash;
mod models;
mod runner;
mod tidy;
