//! Each key of the settings has an effect or is refused by name.

use super::*;
use serde_json::json;

fn parse(document: &Value) -> Result<CheckpointSettings, LibraryError> {
    CheckpointSettings::parse(Some(&document.to_string()))
}

/// Returns a document that sets the key of a path.
fn document(path: &str, value: Value) -> Value {
    path.rsplit('.')
        .fold(value, |value, name| json!({name: value}))
}

#[test]
fn defaults_are_those_of_the_table() {
    let none = CheckpointSettings::parse(None).unwrap();
    assert_eq!(parse(&json!({})).unwrap(), none);
    assert_eq!(none.archive_dir, "archive.d");
    assert_eq!((none.copies_max, none.attempts_max), (10, 3));
    assert!(!none.incremental && !none.compress && !none.needs_reasons());
    for key in PERSISTENCE_KEYS {
        let default = default_value(key.path);
        assert_eq!(
            parse(&document(key.path, default)).unwrap(),
            none,
            "{}",
            key.path
        );
        assert_eq!(
            parse(&document(key.path, Value::Null)).unwrap(),
            none,
            "{}",
            key.path
        );
    }
}

/// Every key changes the settings, or is refused with any other value than its own.
#[test]
fn no_key_is_ignored() {
    let fixed = [
        (EXTENDS.path, json!("another"), "must be one of default"),
        (ATOMIC.path, json!(false), "no reader meets half of it"),
        (
            "checkpoint.triggers.on_suspend.enabled",
            json!(false),
            "always saved",
        ),
        (
            "checkpoint.triggers.on_error.enabled",
            json!(false),
            "always saved",
        ),
        (
            "checkpoint.triggers.on_cancel.enabled",
            json!(false),
            "always saved",
        ),
        (
            "checkpoint.triggers.on_cancel.priority",
            json!(9),
            "has ended",
        ),
    ];
    let changed = [
        ("checkpoint.triggers.pre_turn.enabled", json!(false)),
        ("checkpoint.triggers.pre_turn.priority", json!(10)),
        ("checkpoint.triggers.post_llm.enabled", json!(false)),
        ("checkpoint.triggers.post_llm.priority", json!(10)),
        ("checkpoint.triggers.post_tools.enabled", json!(false)),
        ("checkpoint.triggers.post_tools.priority", json!(10)),
        ("checkpoint.triggers.on_suspend.priority", json!(9)),
        ("checkpoint.triggers.on_error.priority", json!(9)),
        (INCREMENTAL.path, json!(true)),
        (COMPRESS.path, json!(true)),
        (RETRY_ENABLED.path, json!(false)),
        (RETRY_ATTEMPTS.path, json!(4)),
        (RETRY_BACKOFF.path, json!("linear")),
        (COPIES_MAX.path, json!(11)),
        (CLEANUP_ENABLED.path, json!(false)),
        (CLEANUP_NEWEST.path, json!(4)),
        (CLEANUP_DAYS.path, json!(8)),
        (COMPLETION_ACTION.path, json!("keep")),
        (ARCHIVE_PATH.path, json!(".ai/threads/{thread_id}/old.d")),
    ];
    for key in PERSISTENCE_KEYS {
        let is_fixed = fixed.iter().any(|(path, ..)| *path == key.path);
        let is_changed = changed.iter().any(|(path, _)| *path == key.path);
        assert!(is_fixed != is_changed, "{}", key.path);
    }
    let none = CheckpointSettings::parse(None).unwrap();
    for (path, value) in changed {
        assert_ne!(parse(&document(path, value)).unwrap(), none, "{path}");
    }
    for (path, value, why) in fixed {
        let error = parse(&document(path, value)).unwrap_err().to_string();
        assert!(error.starts_with(path) && error.contains(why), "{error}");
    }
}

#[test]
fn wrong_keys_and_values_are_refused_by_their_path() {
    for (wrong, words) in [
        (
            json!({"checkpoints": {}}),
            ["checkpoints", "did you mean checkpoint?"],
        ),
        (
            json!({"incremental": true}),
            ["incremental", "its place is checkpoint.performance"],
        ),
        (
            json!({"state": {"schema": {}}}),
            ["state", "docs/state.schema.json"],
        ),
        (
            json!({"schema_version": "1.0.0"}),
            ["schema_version", "1.1.0 is written"],
        ),
        (json!({"checkpoint": 7}), ["checkpoint", "is a section"]),
        (json!({"zzzz": 7}), ["zzzz", "is no setting"]),
        (
            document(COPIES_MAX.path, json!(0)),
            [COPIES_MAX.path, "from 1 to 1000"],
        ),
        (
            json!({"retention": {"max_checkpoints": 2, "cleanup": {"keep_last_n": 3}}}),
            [CLEANUP_NEWEST.path, "more than the 2"],
        ),
        (
            document(CLEANUP_DAYS.path, json!("7")),
            [CLEANUP_DAYS.path, "whole number"],
        ),
        (
            document(COMPRESS.path, json!("yes")),
            [COMPRESS.path, "true or false"],
        ),
        (
            document(RETRY_ATTEMPTS.path, json!(11)),
            [RETRY_ATTEMPTS.path, "from 1 to 10"],
        ),
        (
            document(RETRY_BACKOFF.path, json!("slow")),
            [RETRY_BACKOFF.path, "exponential"],
        ),
        (
            document("checkpoint.triggers.pre_turn.priority", json!(11)),
            ["checkpoint.triggers.pre_turn.priority", "from 1 to 10"],
        ),
        (
            document(COMPLETION_ACTION.path, json!("move")),
            [COMPLETION_ACTION.path, "archive"],
        ),
    ] {
        let error = parse(&wrong).unwrap_err().to_string();
        assert!(
            words.iter().all(|word| error.contains(word)),
            "{error}: {words:?}"
        );
    }
}

#[test]
fn archive_is_a_directory_of_the_thread_that_is_no_thread() {
    let archive = |path: &str| {
        let settings = parse(&document(ARCHIVE_PATH.path, json!(path)));
        settings.map(|settings| settings.archive_dir)
    };
    for (path, name) in [
        (SEED_ARCHIVE_PATH, "archive.d"),
        (".ai/threads/{thread_id}/archive.d/", "archive.d"),
        (".ai/threads/{thread_id}/old-1.d", "old-1.d"),
    ] {
        assert_eq!(archive(path).unwrap(), name);
    }
    for path in [
        "archive.d",
        "/tmp/archive.d/",
        ".ai/archive.d/",
        ".ai/threads/{thread_id}/",
        ".ai/threads/{thread_id}/old",
        ".ai/threads/{thread_id}/a/b.d",
        ".ai/threads/{thread_id}/../x.d",
        ".ai/threads/{thread_id}/..d",
        ".ai/threads/{thread_id}/checkpoints.d",
        ".ai/threads/{thread_id}/blobs.d",
        ".ai/threads/other/archive.d",
    ] {
        let error = archive(path).unwrap_err().to_string();
        assert!(
            error.contains("nothing is written outside"),
            "{path}: {error}"
        );
    }
}

#[test]
fn pauses_grow_as_the_backoff_says() {
    let pauses = |backoff: RetryBackoff| [1, 2, 3, 9].map(|n| backoff.pause(n).as_millis());
    assert_eq!(pauses(RetryBackoff::Constant), [100, 100, 100, 100]);
    assert_eq!(pauses(RetryBackoff::Linear), [100, 200, 300, 900]);
    assert_eq!(pauses(RetryBackoff::Exponential), [100, 200, 400, 5_000]);
}

#[test]
fn reasons_are_needed_where_ordinary_triggers_differ() {
    let needs = |path: &str, value| parse(&document(path, value)).unwrap().needs_reasons();
    assert!(needs("checkpoint.triggers.pre_turn.enabled", json!(false)));
    assert!(needs("checkpoint.triggers.post_tools.priority", json!(10)));
    assert!(!needs("checkpoint.triggers.on_suspend.priority", json!(1)));
}

/// Symptom: `max_checkpoints: 2` alone was refused because of a `keep_last_n: 3` that nobody had
/// written; an archive in `CHECKPOINTS.d`, which is the copies' own directory where case does not
/// count, was accepted. Kind: a default gives way to what a file says; names are compared as file
/// systems do.
#[test]
fn a_default_gives_way_and_own_directories_are_kept() {
    let few = parse(&document("retention.max_checkpoints", 2.into())).unwrap();
    assert_eq!(few.copies_max, 2);
    assert_eq!(few.cleanup.unwrap().newest, 2);
    for name in ["CHECKPOINTS.d", "checkpoints.d", "Blobs.d"] {
        let path = format!(".ai/threads/{{thread_id}}/{name}/");
        let refused = parse(&document(
            "retention.on_completion.archive_path",
            path.into(),
        ));
        assert!(refused.is_err(), "{name}");
    }
}
