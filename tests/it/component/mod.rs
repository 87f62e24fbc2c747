//! Runs through the component and the driver, over real stores, scripted models and a real model
//! server.

mod after;
mod dropped;
mod embed;
mod fresh;
mod imports;
mod limits;
mod llmock;
mod many;
pub(crate) mod project;
mod queue;
mod runs;
mod texts;
mod thinking;
mod unread;
pub(crate) mod world;
