//! Runs through the component and the driver, over real stores, scripted models and a real model server.

mod embed;
mod imports;
mod limits;
mod llmock;
pub(crate) mod project;
mod runs;
mod texts;
mod thinking;
