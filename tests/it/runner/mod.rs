//! The runner over the natively compiled service: tables of answers, and histories of random
//! requests that an auditor checks after every one.

mod charges;
mod chats;
mod late;
pub mod own_loop;
pub mod property;
mod regressions;
mod tables;
pub mod world;
