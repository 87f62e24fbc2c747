//! Documents made from histories: Markdown, JSON lines, the manifest, `thread.json` and
//! `state.json`.

mod jsonl;
mod markdown;
mod thread_json;

pub use jsonl::{jsonl, manifest};
pub use markdown::{markdown, markdown_opening};
pub use thread_json::{state_json, thread_json};
