//! Documents made from histories: Markdown, JSON lines, the manifest, `thread.json` and
//! `state.json`.

mod checkpoint;
mod jsonl;
mod markdown;
mod thread_json;

pub use checkpoint::{
    CHECKPOINT_END, CheckpointSource, PartialReply, checkpoint_head, push_checkpoint_messages,
};
pub use jsonl::{jsonl, manifest};
pub use markdown::{markdown, markdown_opening};
pub use thread_json::thread_json;
