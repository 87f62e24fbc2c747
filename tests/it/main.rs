//! The one test binary of Threadkeep. Each module is one kind of evidence.

mod approvals;
mod audit;
mod blobs;
mod bundle;
mod ceilings;
mod children;
mod cli;
mod component;
mod conformance;
mod continuation;
mod crash;
mod documents;
mod guide;
mod history;
mod hostile;
mod hosts;
mod inner_runs;
mod ledger;
mod models;
mod paths;
mod readme;
mod resumes;
mod runner;
mod states;
mod stores;
mod tidy;
