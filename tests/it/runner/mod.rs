//! The runner over the natively compiled service: tables of answers, and histories of random
//! requests that an auditor checks after every one.

mod answer_tables;
mod charges;
mod chats;
mod commit_reasons;
pub mod external_loop;
mod fail_signals;
pub mod fixture;
mod incomplete_histories;
mod newer_formats;
mod ports;
pub mod random_requests;
mod regressions;
mod unreachable_stores;
mod usage_correction;
