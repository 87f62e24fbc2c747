//! Names of the tools that the runner itself performs. Core has their definitions.

/// The names, in the order in which a model is offered them.
pub const BUILTIN_TOOL_NAMES: [&str; 11] = [
    "spawn_thread",
    "wait_threads",
    "thread_status",
    "list_threads",
    "send_message",
    "cancel_thread",
    "kill_thread",
    "read_transcript",
    "aggregate_results",
    "get_chain",
    "resume_thread",
];
