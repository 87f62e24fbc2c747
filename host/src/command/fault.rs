//! Converts errors of the host to faults: the problem, its place, what to do next, and the exit
//! code.

use super::convert::to_contract;
use super::session::CommandProject;
use std::error::Error;
use threadkeep::authority::AuthorityError;
use threadkeep::blobs::BlobError;
use threadkeep::ceilings::CeilingRefusal;
use threadkeep::documents::DocumentError;
use threadkeep::driver::DriveError;
use threadkeep::error::CallError;
use threadkeep::library::LibraryError;
use threadkeep::models::ModelFailure;
use threadkeep::project::{ProjectError, RecoverError, SettingsError};
use threadkeep::storage::StorageError;
use threadkeep::wit;
use threadkeep_cli::answer::ceiling_advice;
use threadkeep_cli::command::fault;
use threadkeep_cli::exit::{CommandExit, CommandFault};

pub use threadkeep_cli::command::fault::busy;

/// Converts the error of a call of the component.
pub fn from_call(error: &CallError) -> CommandFault {
    fault::from_call(&to_contract(error))
}

/// Converts the error of a call about a thread of an open project: adds who holds it, or where else
/// to look.
pub fn from_thread_call(opened: &CommandProject, thread: &str, error: &CallError) -> CommandFault {
    fault::from_thread_call(opened, thread, &to_contract(error))
}

/// Converts the error of a call that gave no answer, which is no refusal.
pub fn from_failed_call(error: &CallError) -> CommandFault {
    let message = error.to_string();
    match error {
        CallError::Limit(_) => CommandFault::new("limit", message)
            .with_hint("try again; what was committed stands, `threadkeep show` says what"),
        CallError::Trapped(_) => CommandFault::new("trapped", message)
            .with_hint("this is a fault of ours: please report it; what was committed stands"),
        CallError::Abandoned => CommandFault::new("abandoned", message),
        CallError::NoThread => CommandFault::new("no-thread", message).with_hint(
            "nothing was written: end what holds threads, or raise `ulimit -u`, and try again",
        ),
        CallError::OutcomeUnknown(inner) => CommandFault {
            message,
            hint: Some(
                "`threadkeep list` shows whether the thread was made: look first".to_owned(),
            ),
            ..from_call(inner)
        },
        _ => CommandFault::new("other", message),
    }
}

/// Converts the error of the store of an open project.
pub fn from_store(error: StorageError) -> CommandFault {
    from_project(&ProjectError::Store(error))
}

/// Converts the error of an image that is stored for a thread.
pub fn from_blob(opened: &CommandProject, thread: &str, error: &BlobError) -> CommandFault {
    match error {
        BlobError::Call(error) => from_thread_call(opened, thread, error),
        error => fault::from_blob(error.code().unwrap_or("other"), error.to_string()),
    }
}

/// Returns true if the records of a thread keep its documents from being made or compared: nothing
/// that writes documents helps then.
pub fn is_of_records(error: &DocumentError) -> bool {
    matches!(
        error,
        DocumentError::Call(CallError::Refused(
            wit::Error::Corrupt(_) | wit::Error::Other(_)
        ))
    )
}

/// Advice about records that are wrong.
pub const RECORDS_HINT: &str = "`repair` mends no records: keep a copy of .ai/threads, put the \
                                thread back from an older one, and run `threadkeep audit`, which \
                                says what is wrong";

/// Converts the refusal of another run by the policy.
pub fn from_refusal(refusal: &CeilingRefusal) -> CommandFault {
    CommandFault {
        exit: CommandExit::Busy,
        ..CommandFault::new(&refusal.code(), refusal.message.clone()).with_hint(
            match refusal.ceiling {
                "runs" => format!(
                    "wait until another run has ended, or {}",
                    ceiling_advice("runs")
                ),
                ceiling => ceiling_advice(ceiling),
            },
        )
    }
}

/// Converts the error of a run that was not performed to its end.
pub fn from_drive(opened: &CommandProject, thread: &str, error: &DriveError) -> CommandFault {
    match error {
        DriveError::Call(error) => from_thread_call(opened, thread, error),
        DriveError::Ceiling(refusal) => from_refusal(refusal),
        DriveError::Fenced(_) => CommandFault {
            exit: CommandExit::Busy,
            ..CommandFault::new("fenced", error.to_string())
                .with_hint(format!("`threadkeep show {thread}` says how it stands"))
        },
        DriveError::Waited { .. } | DriveError::QueueFull(_) | DriveError::GivenUp(_) => {
            CommandFault {
                exit: CommandExit::Busy,
                ..CommandFault::new("busy", error.to_string()).with_hint("try again later")
            }
        }
        _ => CommandFault::new("other", with_source(error)),
    }
}

/// Converts the error of a directory or file that cannot be opened.
pub fn from_authority(error: &AuthorityError) -> CommandFault {
    let code = match error {
        AuthorityError::Missing { .. } => "missing",
        _ => "io",
    };
    CommandFault::new(code, with_source(error))
}

/// Converts the error of a project that cannot be opened.
pub fn from_project(error: &ProjectError) -> CommandFault {
    match error {
        ProjectError::Authority(error) => match error {
            AuthorityError::Io { source, .. } if may_not_write(source) => from_authority(error)
                .with_hint(
                    "this user may not write there; what only reads works: `threadkeep list`, \
                     `show`, `transcript`",
                ),
            error => from_authority(error),
        },
        ProjectError::FilesStore(StorageError::Corrupt { .. }) => {
            CommandFault::new("store", with_source(error)).with_hint(fault::DAMAGED_STORE_HINT)
        }
        ProjectError::Store(_) | ProjectError::FilesStore(_) => {
            CommandFault::new("store", with_source(error))
                .with_hint("`threadkeep doctor` says more")
        }
        ProjectError::OtherStore { .. } => CommandFault::new("other-store", error.to_string())
            .with_hint("leave out --store: the store that is there is used"),
        ProjectError::TwoStores => {
            CommandFault::new("two-stores", error.to_string()).with_hint(fault::TWO_STORES_HINT)
        }
        ProjectError::BeingCopied { .. } => {
            busy(error.to_string()).with_hint("repeat the command when `threadkeep copy` has ended")
        }
        _ => CommandFault::new("other", with_source(error)),
    }
}

fn may_not_write(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// Converts the error of settings that cannot take effect.
pub fn from_settings(error: &SettingsError) -> CommandFault {
    match error {
        SettingsError::Checkpoints { .. } => CommandFault::new("invalid", error.to_string())
            .with_hint("docs/checkpoints.md has every key"),
        SettingsError::Library(LibraryError::Invalid { .. }) => {
            CommandFault::new("invalid", error.to_string())
        }
        _ => CommandFault::new("settings", error.to_string()),
    }
}

/// Converts the error of a provider that cannot be created.
pub fn from_provider(failure: &ModelFailure) -> CommandFault {
    CommandFault::new(&failure.code, failure.message.clone())
        .with_hint("`threadkeep doctor` shows every provider and what it lacks")
}

/// Converts the error of a recovery that stopped.
pub fn from_recovery(error: &RecoverError) -> CommandFault {
    match error {
        RecoverError::Call(error) => from_call(error),
        RecoverError::Authority(error) => from_authority(error),
        _ => CommandFault::new("other", with_source(error)),
    }
}

/// Returns the message with those of its sources, such as the operating system's.
pub fn with_source(error: &(dyn Error + 'static)) -> String {
    let mut shown = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !shown.contains(&words) {
            shown = format!("{shown}: {words}");
        }
        source = cause.source();
    }
    shown
}
