//! Definitions of the tools that the runner itself performs: names, descriptions for the model, and
//! schemas of the arguments.

const THREAD_SCHEMA: &str = concat!(
    r#"{"type":"object","properties":{"thread":{"type":"string","#,
    r#""description":"Id of a thread that you spawned, or that one of those spawned."}},"#,
    r#""required":["thread"]}"#
);

/// Place of the default timeout, in seconds, in the schema of `wait_threads`. No other has one.
pub(super) const WAIT_SECONDS_MARK: char = '%';

/// Name, description and schema of the arguments.
pub(super) const TOOLS: [(&str, &str, &str); 11] = [
    (
        "spawn_thread",
        "Start a child thread that runs a directive beside you. Returns its id at once; \
         wait_threads gives its result. A spend in limits is reserved from your own budget; \
         without one it draws on yours.",
        concat!(
            r#"{"type":"object","properties":{"directive":{"type":"string"},"#,
            r#""inputs":{"type":"object"},"model":{"type":"string"},"title":{"type":"string"},"#,
            r#""limits":{"type":"object","description":"Caps: turns, tokens, spend (USD, a "#,
            r#"decimal), spawns, depth, duration (seconds)."},"clamp":{"type":"boolean","#,
            r#""description":"Take what is left if the spend is more than that."}},"#,
            r#""required":["directive"]}"#
        ),
    ),
    (
        "wait_threads",
        "Wait until the child threads have ended or need somebody, and get their results. A child \
         that was interrupted, or that has run out of money it shares with you, keeps the wait \
         open until it goes on.",
        concat!(
            r#"{"type":"object","properties":{"threads":{"type":"array","#,
            r#""items":{"type":"string"},"description":"Ids of 1 to 32 of your children; all of "#,
            r#"them, at most the newest 32, if you do not say."},"any":{"type":"boolean","#,
            r#""description":"Wait for the first of them only."},"timeout":{"type":"integer","#,
            r#""description":"Seconds, % if you do not say."}}}"#
        ),
    ),
    (
        "thread_status",
        "How a thread stands: status, cost, budget.",
        THREAD_SCHEMA,
    ),
    (
        "list_threads",
        "List your children and what they spawned.",
        r#"{"type":"object","properties":{"status":{"type":"string"}}}"#,
    ),
    (
        "send_message",
        "Send a message to a thread; it reads it before its next turn.",
        concat!(
            r#"{"type":"object","properties":{"thread":{"type":"string"},"#,
            r#""message":{"type":"string"}},"required":["thread","message"]}"#
        ),
    ),
    (
        "cancel_thread",
        "End a thread and all that it spawned, once their steps are done.",
        THREAD_SCHEMA,
    ),
    (
        "kill_thread",
        "End a thread and all that it spawned at once.",
        THREAD_SCHEMA,
    ),
    (
        "read_transcript",
        "Read the newest messages of a thread.",
        concat!(
            r#"{"type":"object","properties":{"thread":{"type":"string"},"#,
            r#""last":{"type":"integer","description":"How many, 10 if you do not say, at most "#,
            r#"50."}},"required":["thread"]}"#
        ),
    ),
    (
        "aggregate_results",
        "Get the results of your children together, without waiting.",
        concat!(
            r#"{"type":"object","properties":{"threads":{"type":"array","#,
            r#""items":{"type":"string"},"description":"As for wait_threads."},"#,
            r#""from":{"type":"integer","description":"Of one thread: show its result from this "#,
            r#"byte on."}}}"#
        ),
    ),
    (
        "get_chain",
        "List the threads that one goes on in: its chain, the first link at first.",
        concat!(
            r#"{"type":"object","properties":{"thread":{"type":"string","#,
            r#""description":"Any link: your own id, or that of a thread under you."},"#,
            r#""cursor":{"type":"string"}},"required":["thread"]}"#
        ),
    ),
    (
        "resume_thread",
        "Go on with a thread that has ended, from all that it knows, with a message. wait_threads \
         gives its new result.",
        concat!(
            r#"{"type":"object","properties":{"thread":{"type":"string"},"#,
            r#""message":{"type":"string"}},"required":["thread","message"]}"#
        ),
    ),
];

/// Returns true if the runner itself performs the tool of this name.
pub fn is_builtin_tool(name: &str) -> bool {
    TOOLS.iter().any(|(builtin, ..)| *builtin == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadkeep_units::builtin_tools::BUILTIN_TOOL_NAMES;

    #[test]
    fn every_defined_tool_is_named_for_the_host() {
        assert_eq!(TOOLS.map(|(name, ..)| name), BUILTIN_TOOL_NAMES);
    }
}
