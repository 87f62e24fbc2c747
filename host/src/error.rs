//! Errors of calls, and their descriptions for a person.

use crate::engine::NoAnswer;
use crate::limits::LimitHit;
use crate::wit;
use wasmtime::Trap;

/// Most bytes of a trap's message, which may contain names that the component chose.
const TRAP_BYTES_MAX: usize = 2_048;

/// Reason why a call of the component gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The component refused: a typed error of `wit/types.wit`. Nothing was written, except after
    /// `unknown`.
    #[error("{0}")]
    Refused(wit::Error),
    /// The call reached a limit of [`EngineLimits`](crate::limits::EngineLimits), by name. Its
    /// instance, if it had one, is dropped; what it had committed stands.
    #[error("a call was stopped by the limit {0}")]
    Limit(&'static str),
    /// The component trapped. Its instance is dropped; what it had committed stands.
    #[error("the component trapped: {0}")]
    Trapped(String),
    /// The engine is shutting down, or its own code panicked.
    #[error("the call was abandoned")]
    Abandoned,
    /// The system gives no thread to run the call on. Nothing was written.
    #[error(
        "no thread can be started for the call: the process has as many as it may, or memory is \
         short"
    )]
    NoThread,
    /// A call that must not be made twice ended with an unknown outcome: check whether it was made
    /// before repeating it.
    #[error("{0}; it may have been done all the same")]
    OutcomeUnknown(Box<Self>),
}

impl From<NoAnswer> for CallError {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::Abandoned => Self::Abandoned,
            NoAnswer::NoThread => Self::NoThread,
            NoAnswer::QueueFull => Self::Limit("calls_queued_max"),
            NoAnswer::TimeOver => Self::Limit("wall_time_max"),
        }
    }
}

impl CallError {
    /// The error of a call that wasmtime stopped.
    pub(crate) fn from_trap(trap: &wasmtime::Error) -> Self {
        if let Some(LimitHit(limit)) = trap.downcast_ref() {
            return Self::Limit(limit);
        }
        if let Some(Trap::StackOverflow) = trap.downcast_ref() {
            return Self::Limit("stack_bytes_max");
        }
        let mut words = format!("{trap:#}");
        // wasmtime has no types for these.
        let named = [
            ("fuel allocated for hostcalls", "host_call_bytes_max"),
            ("store handle limit exceeded", "handles_max"),
            ("instance count too high", "core_instances_max"),
            ("table count too high", "tables_max"),
            ("memory count too high", "memories_max"),
        ];
        if let Some((_, limit)) = named.iter().find(|(known, _)| words.contains(known)) {
            return Self::Limit(limit);
        }
        words.truncate(words.floor_char_boundary(TRAP_BYTES_MAX));
        Self::Trapped(words)
    }

    /// True if the error may be caused by what earlier calls left in the instance.
    pub(crate) fn may_come_from_instance(&self) -> bool {
        let grown = ["memory_bytes_max", "table_elements_max", "handles_max"];
        match self {
            Self::Trapped(_) => true,
            Self::Limit(limit) => grown.contains(limit),
            Self::Refused(_) | Self::Abandoned | Self::NoThread | Self::OutcomeUnknown(_) => false,
        }
    }

    /// The error of a call that must not be made twice.
    pub(crate) fn for_non_idempotent(self) -> Self {
        let nothing_done = match &self {
            Self::NoThread => true,
            Self::Refused(error) => !matches!(error, wit::Error::Unknown(_)),
            Self::Limit(limit) => *limit == "calls_queued_max",
            Self::Trapped(_) | Self::Abandoned | Self::OutcomeUnknown(_) => false,
        };
        match nothing_done || !self.retry_unchanged() {
            true => self,
            false => Self::OutcomeUnknown(Box::new(self)),
        }
    }

    /// True if the same call will probably succeed soon: after contention and while a store cannot
    /// be reached.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NoThread | Self::Refused(wit::Error::Unavailable(_) | wit::Error::Unknown(_))
        )
    }

    /// True if the caller may repeat the same call unchanged; but after the outcome `unknown` of an
    /// append to `any`, read first.
    pub fn retry_unchanged(&self) -> bool {
        match self {
            Self::Refused(error) => match error {
                wit::Error::Busy(_) | wit::Error::Unavailable(_) | wit::Error::Unknown(_) => true,
                wit::Error::Invalid(_)
                | wit::Error::NotFound(_)
                | wit::Error::Deleted(_)
                | wit::Error::Exists(_)
                | wit::Error::Continued(_)
                | wit::Error::Refused(_)
                | wit::Error::Fenced(_)
                | wit::Error::Conflict(_)
                | wit::Error::Exceeded(_)
                | wit::Error::Full(_)
                | wit::Error::Corrupt(_)
                | wit::Error::Other(_) => false,
            },
            Self::Trapped(_) | Self::NoThread => true,
            // Resources of others may be free later; the call's own use stays the same.
            Self::Limit(limit) => [
                "calls_queued_max",
                "wall_time_max",
                "tenant_memory_bytes_max",
            ]
            .contains(limit),
            Self::Abandoned | Self::OutcomeUnknown(_) => false,
        }
    }
}

/// An error as a person reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorDescription {
    /// A stable code: the name of the case in `wit/types.wit`, or the error's own code.
    pub code: String,
    /// The problem and its place.
    pub message: String,
    /// The next action, where there is one.
    pub hint: Option<String>,
}

/// Describes an error of the component, by its own sentences.
pub fn describe(error: &wit::Error) -> ErrorDescription {
    let code = match error {
        wit::Error::Other(failure) => &failure.code,
        error => error.kind(),
    };
    let advice = Some(error.advice()).filter(|advice| !advice.is_empty());
    ErrorDescription {
        code: code.to_owned(),
        message: error.message().to_owned(),
        hint: advice.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> wit::CallFailure {
        wit::CallFailure::default()
    }

    /// Symptom: a caller who repeated `create`, because the error allowed it, had two threads. Fix:
    /// a call that must not be made twice may be repeated only if nothing can have been done.
    #[test]
    fn non_idempotent_calls_are_not_repeated_after_unknown_outcome() {
        for (error, again, once) in [
            (
                CallError::Refused(wit::Error::Unknown(failure())),
                true,
                false,
            ),
            (CallError::Trapped(String::new()), true, false),
            (CallError::Limit("wall_time_max"), true, false),
            (CallError::Limit("calls_queued_max"), true, true),
            (
                CallError::Refused(wit::Error::Unavailable(failure())),
                true,
                true,
            ),
            (CallError::NoThread, true, true),
            (CallError::Abandoned, false, false),
            (CallError::Limit("stack_bytes_max"), false, false),
        ] {
            assert_eq!(error.retry_unchanged(), again, "{error}");
            let told = error.to_string();
            let of_once = error.for_non_idempotent();
            assert_eq!(of_once.retry_unchanged(), once, "{of_once}");
            assert!(of_once.to_string().starts_with(&told), "{of_once}");
        }
    }
}
