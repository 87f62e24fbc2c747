//! The keys of a tenant's settings of checkpoints on disk (`state_persistence.yaml`), with their
//! defaults: those of seed 002. The host reads and shows the settings by this table, and a test
//! compares it with the documents.

/// A key of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersistenceKey {
    /// Its path in the file, sections separated by dots.
    pub path: &'static str,
    /// The value that it has where the file does not set it, as JSON.
    pub default: &'static str,
}

const fn key(path: &'static str, default: &'static str) -> PersistenceKey {
    PersistenceKey { path, default }
}

/// Settings that the file builds on.
pub const EXTENDS: PersistenceKey = key("extends", r#""default""#);
/// True to save when a model call is handed out.
pub const PRE_TURN_ENABLED: PersistenceKey = key("checkpoint.triggers.pre_turn.enabled", "true");
/// Priority of those saves.
pub const PRE_TURN_PRIORITY: PersistenceKey = key("checkpoint.triggers.pre_turn.priority", "1");
/// True to save when a reply is recorded.
pub const POST_LLM_ENABLED: PersistenceKey = key("checkpoint.triggers.post_llm.enabled", "true");
/// Priority of those saves.
pub const POST_LLM_PRIORITY: PersistenceKey = key("checkpoint.triggers.post_llm.priority", "2");
/// True to save when results of tools are recorded.
pub const POST_TOOLS_ENABLED: PersistenceKey =
    key("checkpoint.triggers.post_tools.enabled", "true");
/// Priority of those saves.
pub const POST_TOOLS_PRIORITY: PersistenceKey = key("checkpoint.triggers.post_tools.priority", "3");
/// Always true: a thread that is suspended is saved.
pub const ON_SUSPEND_ENABLED: PersistenceKey =
    key("checkpoint.triggers.on_suspend.enabled", "true");
/// Priority of those saves.
pub const ON_SUSPEND_PRIORITY: PersistenceKey =
    key("checkpoint.triggers.on_suspend.priority", "10");
/// Always true: a thread whose attempt has failed, or that has ended by an error, is saved.
pub const ON_ERROR_ENABLED: PersistenceKey = key("checkpoint.triggers.on_error.enabled", "true");
/// Priority of those saves.
pub const ON_ERROR_PRIORITY: PersistenceKey = key("checkpoint.triggers.on_error.priority", "10");
/// Always true: a thread that was cancelled or killed is saved.
pub const ON_CANCEL_ENABLED: PersistenceKey = key("checkpoint.triggers.on_cancel.enabled", "true");
/// Priority of those saves.
pub const ON_CANCEL_PRIORITY: PersistenceKey = key("checkpoint.triggers.on_cancel.priority", "10");
/// True to write most copies as merge patches.
pub const INCREMENTAL: PersistenceKey = key("checkpoint.performance.incremental", "false");
/// True to compress copies.
pub const COMPRESS: PersistenceKey = key("checkpoint.performance.compress", "false");
/// Always true: nothing is written in place.
pub const ATOMIC: PersistenceKey = key("checkpoint.performance.atomic", "true");
/// True to try a save again that has failed.
pub const RETRY_ENABLED: PersistenceKey = key("checkpoint.performance.retry.enabled", "true");
/// Most attempts of a save.
pub const RETRY_ATTEMPTS: PersistenceKey = key("checkpoint.performance.retry.max_attempts", "3");
/// Growth of the pause between two attempts.
pub const RETRY_BACKOFF: PersistenceKey =
    key("checkpoint.performance.retry.backoff", r#""exponential""#);
/// Most copies that are kept.
pub const COPIES_MAX: PersistenceKey = key("retention.max_checkpoints", "10");
/// True to remove copies for their age.
pub const CLEANUP_ENABLED: PersistenceKey = key("retention.cleanup.enabled", "true");
/// Newest copies that are kept whatever their age.
pub const CLEANUP_NEWEST: PersistenceKey = key("retention.cleanup.keep_last_n", "3");
/// Days after which other copies are removed.
pub const CLEANUP_DAYS: PersistenceKey = key("retention.cleanup.delete_older_than_days", "7");
/// Use of the checkpoints of a thread that has ended.
pub const COMPLETION_ACTION: PersistenceKey = key("retention.on_completion.action", r#""archive""#);
/// Directory that they are moved to.
pub const ARCHIVE_PATH: PersistenceKey = key(
    "retention.on_completion.archive_path",
    r#"".ai/threads/{thread_id}/archive.d/""#,
);

/// Every key, in the order of documents.
pub const PERSISTENCE_KEYS: [PersistenceKey; 25] = [
    EXTENDS,
    PRE_TURN_ENABLED,
    PRE_TURN_PRIORITY,
    POST_LLM_ENABLED,
    POST_LLM_PRIORITY,
    POST_TOOLS_ENABLED,
    POST_TOOLS_PRIORITY,
    ON_SUSPEND_ENABLED,
    ON_SUSPEND_PRIORITY,
    ON_ERROR_ENABLED,
    ON_ERROR_PRIORITY,
    ON_CANCEL_ENABLED,
    ON_CANCEL_PRIORITY,
    INCREMENTAL,
    COMPRESS,
    ATOMIC,
    RETRY_ENABLED,
    RETRY_ATTEMPTS,
    RETRY_BACKOFF,
    COPIES_MAX,
    CLEANUP_ENABLED,
    CLEANUP_NEWEST,
    CLEANUP_DAYS,
    COMPLETION_ACTION,
    ARCHIVE_PATH,
];

/// Values of `extends`: these settings themselves, by their name and by that of seed 002.
pub const EXTENDED_NAMES: [&str; 2] = ["default", "rye/agent/threads/config/state_schema.yaml"];

/// The path of `archive_path` that seed 002 names. It could be the directory of a thread, so it
/// stands for [`ARCHIVE_PATH`]'s default.
pub const SEED_ARCHIVE_PATH: &str = ".ai/threads/{thread_id}/archive/";

/// Names of the triggers of a save.
pub const TRIGGER_NAMES: [&str; 6] = [
    "pre_turn",
    "post_llm",
    "post_tools",
    "on_suspend",
    "on_error",
    "on_cancel",
];

/// Priority of a save that must succeed.
pub const PRIORITY_MUST: u64 = 10;
