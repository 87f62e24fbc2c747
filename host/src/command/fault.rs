//! Converts errors of the host to faults: the problem, its place, what to do next, and the exit
//! code.

use super::session::CommandProject;
use std::error::Error;
use threadkeep::authority::{self, AuthorityError, HolderState};
use threadkeep::blobs::BlobError;
use threadkeep::ceilings::CeilingRefusal;
use threadkeep::documents::DocumentError;
use threadkeep::driver::DriveError;
use threadkeep::error::{CallError, describe};
use threadkeep::library::LibraryError;
use threadkeep::models::ModelFailure;
use threadkeep::project::{ProjectError, RecoverError, SettingsError};
use threadkeep::storage::StorageError;
use threadkeep::wit;
use threadkeep_cli::answer::{CapKind, CapSource, ceiling_advice};
use threadkeep_cli::exit::{CommandExit, CommandFault};

/// Most names that a hint lists.
const NAMED_MAX: usize = 10;

/// The reason why a store in memory has no such thread.
pub const MEMORY_STORE_HINT: &str = "--store memory begins empty and keeps nothing: leave it out \
                                     to find what is kept in the project";

/// Converts the error of a call of the component.
pub fn from_call(error: &CallError) -> CommandFault {
    let message = error.to_string();
    match error {
        CallError::Refused(refused) => {
            let described = describe(refused);
            let fault = CommandFault {
                exit: exit_for(refused),
                ..CommandFault::new(&described.code, described.message)
            };
            match advice(refused).or(described.hint) {
                Some(hint) => fault.with_hint(hint),
                None => fault,
            }
        }
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

/// Converts the error of an image that is stored for a thread.
pub fn from_blob(opened: &CommandProject, thread: &str, error: &BlobError) -> CommandFault {
    match error {
        BlobError::Call(error) => from_thread_call(opened, thread, error),
        BlobError::Ended { .. } => CommandFault::new("refused", error.to_string()),
        BlobError::Storage(StorageError::QuotaExceeded { .. }) => {
            CommandFault::new("full", error.to_string())
        }
        BlobError::Storage(_) | BlobError::Contention => {
            CommandFault::new("unavailable", error.to_string()).with_hint("try again")
        }
        error => CommandFault::new("invalid", error.to_string()),
    }
}

/// Code of the refusal of a message for which an inbox has no room.
const INBOX_FULL: &str = "inbox_full";

fn exit_for(error: &wit::Error) -> CommandExit {
    match error {
        wit::Error::Busy(_)
        | wit::Error::Exists(_)
        | wit::Error::Fenced(_)
        | wit::Error::Conflict(_) => CommandExit::Busy,
        wit::Error::Exceeded(cause) if cause.code == INBOX_FULL => CommandExit::Busy,
        wit::Error::Exceeded(_) => CommandExit::Suspended,
        wit::Error::Invalid(_)
        | wit::Error::NotFound(_)
        | wit::Error::Deleted(_)
        | wit::Error::Continued(_)
        | wit::Error::Refused(_)
        | wit::Error::Unavailable(_)
        | wit::Error::Unknown(_)
        | wit::Error::Full(_)
        | wit::Error::Corrupt(_)
        | wit::Error::Other(_) => CommandExit::Error,
        // A kind that a later version of the library knows.
        _ => CommandExit::Error,
    }
}

/// Returns what to do, where a command knows more than the description of the error.
fn advice(error: &wit::Error) -> Option<String> {
    let words = match error {
        wit::Error::Exists(wit::TakenId { thread: id, .. }) => {
            return Some(format!(
                "choose another id, which differs in more than upper and lower case, or see \
                 `threadkeep show {id}`"
            ));
        }
        wit::Error::NotFound(missing) if missing.nearest.is_none() => match missing.kind.as_str() {
            "thread" => "`threadkeep list` shows those that there are",
            "directive" => "a directive is a file .ai/directives/NAME.md",
            "model" => "`threadkeep doctor` shows the models and tiers that there are",
            _ => return None,
        },
        wit::Error::Fenced(_) | wit::Error::Conflict(_) => {
            "`threadkeep show THREAD` says how it stands"
        }
        wit::Error::Busy(_) => "try again later, or `recover` if its holder died",
        wit::Error::Unknown(_) => "repeat the same command: it finds out and does nothing twice",
        wit::Error::Exceeded(cause) if cause.code == INBOX_FULL => {
            "send it again once the thread has taken its messages"
        }
        wit::Error::Exceeded(_) => {
            "raise the cap: `threadkeep raise THREAD`, then `threadkeep resume THREAD`"
        }
        wit::Error::Other(failure) => return advice_by_code(&failure.code).map(str::to_owned),
        wit::Error::Corrupt(_) => {
            "keep a copy of .ai/threads and report it; `threadkeep doctor` says what still works"
        }
        _ => return None,
    };
    Some(words.to_owned())
}

/// Returns what to do about a failure that has only a code.
fn advice_by_code(code: &str) -> Option<&'static str> {
    Some(match code {
        "out-of-memory" => {
            "`threadkeep doctor` names a row that is too large: keep a copy of .ai/threads and put \
             the store back from an older one; if it names none, free memory and try again"
        }
        "newer-format" => {
            "use the threadkeep that wrote it, or a newer one; what only reads works: `threadkeep \
             show`, `transcript`"
        }
        "read-only" => {
            "this user may not write there; what only reads works: `threadkeep list`, `show`, \
             `transcript`"
        }
        "sqlite" => "`threadkeep doctor` says what still works",
        _ => return None,
    })
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

/// Converts the error of a call about a thread of an open project: adds who holds it, or where else
/// to look.
pub fn from_thread_call(opened: &CommandProject, thread: &str, error: &CallError) -> CommandFault {
    let mut fault = from_call(error);
    match error {
        CallError::Refused(wit::Error::Busy(busy)) => {
            fault.hint = Some(busy_hint(opened, &busy.lease));
        }
        CallError::Refused(wit::Error::NotFound(_)) if opened.is_memory_only() => {
            fault.hint = Some(MEMORY_STORE_HINT.to_owned());
        }
        CallError::Refused(wit::Error::NotFound(_)) if opened.is_empty() => {
            let hint =
                "this project has no store yet: `threadkeep run DIRECTIVE` makes its first thread";
            fault.hint = Some(hint.to_owned());
        }
        CallError::Refused(wit::Error::Exceeded(cause)) if cause.code != INBOX_FULL => {
            let cap = CapKind::from_code(&cause.code).unwrap_or(CapKind::Spend);
            // For money the cause names what is left, not the cap that limits it.
            let bound = match cap {
                CapKind::Spend => CapSource::Thread,
                cap => cap_source_at(opened, cap, cause.maximum),
            };
            // A raise that the account above refused cannot be repeated unchanged.
            fault.hint = Some(match cause.account {
                Some(_) => format!("threadkeep raise {thread} --spend USD --through"),
                None => cap.advice(thread, bound),
            });
        }
        _ => fault.hint = fault.hint.map(|hint| hint.replace("THREAD", thread)),
    }
    fault
}

/// Returns whose cap a suspended thread has reached.
pub fn cap_source(opened: &CommandProject, thread: &wit::Thread) -> CapSource {
    let code = thread.cause.as_ref().map(|cause| cause.code.as_str());
    let Some(cap) = code.and_then(CapKind::from_code) else {
        return CapSource::Thread;
    };
    cap_source_at(opened, cap, cap_of(&thread.limits, cap))
}

/// Returns the cap of this kind.
pub fn cap_of(limits: &wit::Limits, cap: CapKind) -> Option<u64> {
    match cap {
        CapKind::Turns => limits.turns.map(u64::from),
        CapKind::Tokens => limits.tokens,
        CapKind::Spend => limits.spend,
        CapKind::Spawns => limits.spawns.map(u64::from),
        CapKind::Depth => limits.depth.map(u64::from),
        CapKind::Duration => limits.duration,
    }
}

/// Compares the policy's cap with the thread's own.
fn cap_source_at(opened: &CommandProject, cap: CapKind, own: Option<u64>) -> CapSource {
    let policy = opened.project().library().policy();
    match (policy.cap(cap.as_str()), own) {
        (Some(most), Some(own)) if most == own => CapSource::Both,
        (Some(most), own) if own.is_none_or(|own| most < own) => CapSource::Policy,
        _ => CapSource::Thread,
    }
}

/// Returns whether the process that holds the lease lives. Only the lock file of a native holder
/// tells.
fn holder_life(opened: &CommandProject, lease: &wit::Lease) -> HolderState {
    let threads = opened.project().threads();
    let life = threads.map(|threads| authority::holder_state(threads, &lease.holder));
    life.and_then(Result::ok).unwrap_or(HolderState::Unknown)
}

/// Returns true if the process of a holder is known to be dead.
pub fn is_dead(opened: &CommandProject, lease: &wit::Lease) -> bool {
    matches!(holder_life(opened, lease), HolderState::Dead)
}

/// Returns true if the process of a holder is known to live.
pub fn is_alive(opened: &CommandProject, lease: &wit::Lease) -> bool {
    matches!(holder_life(opened, lease), HolderState::Lives)
}

/// Advises what to do about a thread that another process holds.
pub fn busy_hint(opened: &CommandProject, lease: &wit::Lease) -> String {
    match holder_life(opened, lease) {
        HolderState::Dead => format!(
            "its process is dead: `threadkeep resume {}` goes on with it",
            lease.thread
        ),
        HolderState::Lives => {
            let lock = authority::lock_file_place(&lease.holder);
            format!(
                "its process is alive, for {lock} is locked: wait for it, or end it with \
                 `threadkeep cancel`; if another program keeps that lock: `threadkeep recover \
                 --dead {}`",
                lease.holder
            )
        }
        HolderState::Unknown => format!(
            "wait for it; if its host is gone: `threadkeep recover --dead {}`",
            lease.holder
        ),
    }
}

/// Converts the error of a call that names something of the library; a missing name gets a list of
/// those that exist.
pub fn from_named_call(opened: &CommandProject, error: &CallError) -> CommandFault {
    let fault = from_call(error);
    let missing = match error {
        CallError::Refused(wit::Error::NotFound(missing)) => missing,
        CallError::Refused(wit::Error::Invalid(wrong)) if fault.hint.is_none() => {
            return match wrong.field.strip_prefix("inputs.") {
                // A missing input has no value; for an unknown input the value is its name.
                Some(name) if wrong.value.is_empty() => {
                    fault.with_hint(format!("give it with --input {name}=VALUE"))
                }
                Some(_) | None => fault,
            };
        }
        _ => return fault,
    };
    let library = &opened.tenant().context().library;
    if missing.nearest.is_some() {
        return fault;
    }
    let names = library.names(&missing.kind).unwrap_or_default();
    if names.is_empty() {
        return fault;
    }
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    fault.with_hint(format!("there are: {}{more}", shown.join(", ")))
}

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
        ProjectError::Store(_) | ProjectError::FilesStore(_) => {
            CommandFault::new("store", with_source(error))
                .with_hint("`threadkeep doctor` says more")
        }
        ProjectError::OtherStore { .. } => CommandFault::new("other-store", error.to_string())
            .with_hint("leave out --store: the store that is there is used"),
        ProjectError::TwoStores => CommandFault::new("two-stores", error.to_string())
            .with_hint("--store sqlite or --store files names the one that counts"),
        ProjectError::BeingCopied { .. } => {
            busy(error.to_string()).with_hint("repeat the command when `threadkeep copy` has ended")
        }
        _ => CommandFault::new("other", with_source(error)),
    }
}

/// The fault of what another process holds.
pub fn busy(message: impl Into<String>) -> CommandFault {
    CommandFault {
        exit: CommandExit::Busy,
        ..CommandFault::new("busy", message)
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
