//! The keys of a tenant's settings of coordination (`coordination.yaml`), with their defaults. The
//! core reads the settings by this table, the host shows them by it, and a test compares it with
//! the documents.

/// A key of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinationKey {
    /// Its path in the file, sections separated by dots.
    pub path: &'static str,
    /// The value that it has where the file does not set it, as JSON.
    pub default: &'static str,
}

impl CoordinationKey {
    /// Returns true if null in the file is a value of its own and does not mean the default.
    pub fn takes_null(self) -> bool {
        self == SUMMARY_DIRECTIVE
    }
}

/// Part of the window from which on a thread is handed off.
pub const TRIGGER: CoordinationKey = CoordinationKey {
    path: "coordination.continuation.trigger_threshold",
    default: "0.9",
};
/// Most tokens of summary and trailing messages that a hand-off carries over.
pub const CEILING: CoordinationKey = CoordinationKey {
    path: "coordination.continuation.resume_ceiling_tokens",
    default: "16000",
};
/// Directive by which a summary is written; null for none.
pub const SUMMARY_DIRECTIVE: CoordinationKey = CoordinationKey {
    path: "coordination.continuation.summary_directive",
    default: r#""rye/agent/threads/thread_summary""#,
};
/// Model or tier that writes the summary.
pub const SUMMARY_MODEL: CoordinationKey = CoordinationKey {
    path: "coordination.continuation.summary_model",
    default: r#""fast""#,
};
/// Most tokens that a summary is asked to have.
pub const SUMMARY_TOKENS: CoordinationKey = CoordinationKey {
    path: "coordination.continuation.summary_max_tokens",
    default: "4000",
};
/// Most attempts of a summary.
pub const SUMMARY_TURNS: CoordinationKey = CoordinationKey {
    path: "coordination.continuation.summary_limit_overrides.turns",
    default: "3",
};
/// Most US dollars that the attempts of a summary may cost.
pub const SUMMARY_SPEND: CoordinationKey = CoordinationKey {
    path: "coordination.continuation.summary_limit_overrides.spend",
    default: "0.02",
};
/// Seconds that a `wait_threads` waits which names no timeout.
pub const WAIT_TIMEOUT: CoordinationKey = CoordinationKey {
    path: "coordination.wait_threads.default_timeout",
    default: "600",
};
/// Strictness with which the signatures of histories are to be checked.
pub const TRANSCRIPT_INTEGRITY: CoordinationKey = CoordinationKey {
    path: "coordination.transcript_integrity",
    default: r#""strict""#,
};

/// Every key, in the order of documents.
pub const COORDINATION_KEYS: [CoordinationKey; 9] = [
    TRIGGER,
    CEILING,
    SUMMARY_DIRECTIVE,
    SUMMARY_MODEL,
    SUMMARY_TOKENS,
    SUMMARY_TURNS,
    SUMMARY_SPEND,
    WAIT_TIMEOUT,
    TRANSCRIPT_INTEGRITY,
];

/// The path of every key and of the sections above them.
pub const COORDINATION_PLACES: [&str; 13] = [
    "coordination",
    "coordination.continuation",
    TRIGGER.path,
    CEILING.path,
    SUMMARY_DIRECTIVE.path,
    SUMMARY_MODEL.path,
    SUMMARY_TOKENS.path,
    "coordination.continuation.summary_limit_overrides",
    SUMMARY_TURNS.path,
    SUMMARY_SPEND.path,
    "coordination.wait_threads",
    WAIT_TIMEOUT.path,
    TRANSCRIPT_INTEGRITY.path,
];

/// Tier of the model that writes summaries where nothing names another. Where a tenant has no model
/// of this tier, the thread's own model writes them.
pub const SUMMARY_TIER: &str = "fast";

/// The summary directive that is built in, unless the tenant has one of this name.
pub const BUILTIN_SUMMARY: &str = "rye/agent/threads/thread_summary";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_keys_and_their_sections() {
        let paths = COORDINATION_KEYS.map(|key| key.path);
        for path in paths {
            assert!(COORDINATION_PLACES.contains(&path), "{path}");
        }
        for place in COORDINATION_PLACES {
            let inner = format!("{place}.");
            let is_section = paths.iter().any(|path| path.starts_with(&inner));
            assert!(is_section != paths.contains(&place), "{place}");
            let above = place.rsplit_once('.').map_or(place, |(above, _)| above);
            assert!(COORDINATION_PLACES.contains(&above), "{place}");
        }
    }
}
