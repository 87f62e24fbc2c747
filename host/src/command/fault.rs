//! Converts errors of the host to faults: the problem, its place, what to do next, and the exit
//! code.

use super::open::Opened;
use std::error::Error;
use threadkeep::authority::{self, AuthorityError, Life};
use threadkeep::ceilings::Refusal;
use threadkeep::driver::DriveError;
use threadkeep::error::{CallError, describe};
use threadkeep::library::LibraryError;
use threadkeep::models::Failure;
use threadkeep::project::{ProjectError, RecoverError, SettingsError};
use threadkeep::wit;
use threadkeep_cli::answer::{Bound, Cap, lift};
use threadkeep_cli::exit::{Exit, Fault};

/// Most names that a hint lists.
const NAMED_MAX: usize = 10;

/// The reason why a store in memory has no such thread.
pub const FORGETS: &str = "--store memory begins empty and keeps nothing: leave it out to find what is kept in the project";

/// Converts the error of a call of the component.
pub fn call(error: &CallError) -> Fault {
    let message = error.to_string();
    match error {
        CallError::Refused(refused) => {
            let described = describe(refused);
            let fault = Fault {
                exit: exit(refused),
                ..Fault::new(&described.code, described.message)
            };
            match advice(refused).or(described.hint) {
                Some(hint) => fault.hint(hint),
                None => fault,
            }
        }
        CallError::Limit(_) => Fault::new("limit", message)
            .hint("try again; what was committed stands, `threadkeep show` says what"),
        CallError::Trapped(_) => Fault::new("trapped", message)
            .hint("this is a fault of ours: please report it; what was committed stands"),
        CallError::Abandoned => Fault::new("abandoned", message),
        CallError::NoThread => Fault::new("no-thread", message).hint(
            "nothing was written: end what holds threads, or raise `ulimit -u`, and try again",
        ),
        CallError::Unsure(inner) => Fault {
            message,
            hint: Some(
                "`threadkeep list` shows whether the thread was made: look first".to_owned(),
            ),
            ..call(inner)
        },
        _ => Fault::new("other", message),
    }
}

fn exit(error: &wit::Error) -> Exit {
    match error {
        wit::Error::Busy(_)
        | wit::Error::Exists(_)
        | wit::Error::Fenced(_)
        | wit::Error::Conflict(_) => Exit::Busy,
        wit::Error::Exceeded(_) => Exit::Suspended,
        wit::Error::Invalid(_)
        | wit::Error::NotFound(_)
        | wit::Error::Deleted(_)
        | wit::Error::Continued(_)
        | wit::Error::Refused(_)
        | wit::Error::Unavailable(_)
        | wit::Error::Unknown(_)
        | wit::Error::Full(_)
        | wit::Error::Corrupt(_)
        | wit::Error::Other(_) => Exit::Error,
    }
}

/// Returns what to do, where a command knows more than the description of the error.
fn advice(error: &wit::Error) -> Option<String> {
    let words = match error {
        wit::Error::Exists(id) => {
            return Some(format!(
                "choose another id, which differs in more than upper and lower case, or see `threadkeep show {id}`"
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
        wit::Error::Exceeded(_) => {
            "raise the cap: `threadkeep raise THREAD`, then `threadkeep resume THREAD`"
        }
        wit::Error::Corrupt(_) => {
            "keep a copy of .ai/threads and report it; `threadkeep doctor` says what still works"
        }
        _ => return None,
    };
    Some(words.to_owned())
}

/// Converts the error of a call about a thread of an open project: adds who holds it, or where else
/// to look.
pub fn of_thread(opened: &Opened, thread: &str, error: &CallError) -> Fault {
    let mut fault = call(error);
    match error {
        CallError::Refused(wit::Error::Busy(lease)) => {
            fault.hint = Some(busy(opened, lease));
        }
        CallError::Refused(wit::Error::NotFound(_)) if opened.forgets() => {
            fault.hint = Some(FORGETS.to_owned());
        }
        CallError::Refused(wit::Error::NotFound(_)) if opened.is_empty() => {
            let hint =
                "this project has no store yet: `threadkeep run DIRECTIVE` makes its first thread";
            fault.hint = Some(hint.to_owned());
        }
        CallError::Refused(wit::Error::Exceeded(cause)) => {
            let cap = Cap::of_code(&cause.code).unwrap_or(Cap::Spend);
            // For money the cause names what is left, not the cap that limits it.
            let bound = match cap {
                Cap::Spend => Bound::Thread,
                cap => bound_at(opened, cap, cause.maximum),
            };
            // A raise that the account above refused cannot be repeated unchanged.
            fault.hint = match cause.message.contains("raise through") {
                true => Some(format!("threadkeep raise {thread} --spend USD --through")),
                false => Some(cap.advice(thread, bound)),
            };
        }
        _ => fault.hint = fault.hint.map(|hint| hint.replace("THREAD", thread)),
    }
    fault
}

/// Returns whose cap a suspended thread has reached.
pub fn bound(opened: &Opened, thread: &wit::Thread) -> Bound {
    let own = &thread.limits;
    let code = thread.cause.as_ref().map(|cause| cause.code.as_str());
    let Some(cap) = code.and_then(Cap::of_code) else {
        return Bound::Thread;
    };
    let own = match cap {
        Cap::Turns => own.turns,
        Cap::Tokens => own.tokens,
        Cap::Spend => own.spend,
        Cap::Spawns => own.spawns,
        Cap::Depth => own.depth,
        Cap::Duration => own.duration,
    };
    bound_at(opened, cap, own)
}

/// Compares the policy's cap with the thread's own.
fn bound_at(opened: &Opened, cap: Cap, own: Option<u64>) -> Bound {
    let policy = opened.project().library().policy();
    match (policy.limit(cap.as_str()), own) {
        (Some(most), Some(own)) if most == own => Bound::Both,
        (Some(most), own) if own.is_none_or(|own| most < own) => Bound::Policy,
        _ => Bound::Thread,
    }
}

/// Returns whether the process that holds the lease lives. Only the lock file of a native holder
/// tells.
fn life(opened: &Opened, lease: &wit::Lease) -> Life {
    let threads = opened.project().threads();
    let life = threads.map(|threads| authority::life(threads, &lease.holder));
    life.and_then(Result::ok).unwrap_or(Life::Unknown)
}

/// Returns true if the process of a holder is known to be dead.
pub fn is_dead(opened: &Opened, lease: &wit::Lease) -> bool {
    matches!(life(opened, lease), Life::Dead)
}

/// Returns true if the process of a holder is known to live.
pub fn is_alive(opened: &Opened, lease: &wit::Lease) -> bool {
    matches!(life(opened, lease), Life::Lives)
}

/// What to do about a thread that another process holds.
pub fn busy(opened: &Opened, lease: &wit::Lease) -> String {
    match life(opened, lease) {
        Life::Dead => format!(
            "its process is dead: `threadkeep resume {}` goes on with it",
            lease.thread
        ),
        Life::Lives => {
            let lock = authority::lock_place(&lease.holder);
            format!(
                "its process is alive, for {lock} is locked: wait for it, or end it with \
                 `threadkeep cancel`; if another program keeps that lock: `threadkeep recover --dead {}`",
                lease.holder
            )
        }
        Life::Unknown => format!(
            "wait for it; if its host is gone: `threadkeep recover --dead {}`",
            lease.holder
        ),
    }
}

/// Converts the error of a call that names something of the library; a missing name gets a list of
/// those that exist.
pub fn of_names(opened: &Opened, error: &CallError) -> Fault {
    let fault = call(error);
    let missing = match error {
        CallError::Refused(wit::Error::NotFound(missing)) => missing,
        CallError::Refused(wit::Error::Invalid(wrong)) if fault.hint.is_none() => {
            return match wrong.field.strip_prefix("inputs.") {
                // A missing input has no value; for an unknown input the value is its name.
                Some(name) if wrong.value.is_empty() => {
                    fault.hint(format!("give it with --input {name}=VALUE"))
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
    let names = library.get(&missing.kind, "").unwrap_or_default();
    if names.is_empty() {
        return fault;
    }
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    fault.hint(format!("there are: {}{more}", shown.join(", ")))
}

/// Converts the refusal of another run by the policy.
pub fn no_room(refusal: &Refusal) -> Fault {
    Fault {
        exit: Exit::Busy,
        ..Fault::new(&refusal.code(), refusal.message.clone()).hint(match refusal.ceiling {
            "runs" => format!("wait until another run has ended, or {}", lift("runs")),
            ceiling => lift(ceiling),
        })
    }
}

/// Converts the error of a run that was not performed to its end.
pub fn drive(opened: &Opened, thread: &str, error: &DriveError) -> Fault {
    match error {
        DriveError::Call(error) => of_thread(opened, thread, error),
        DriveError::Ceiling(refusal) => no_room(refusal),
        DriveError::Fenced(_) => Fault {
            exit: Exit::Busy,
            ..Fault::new("fenced", error.to_string())
                .hint(format!("`threadkeep show {thread}` says how it stands"))
        },
        DriveError::Waited { .. } | DriveError::QueueFull(_) | DriveError::GivenUp(_) => Fault {
            exit: Exit::Busy,
            ..Fault::new("busy", error.to_string()).hint("try again later")
        },
        _ => Fault::new("other", with_source(error)),
    }
}

/// Converts the error of a directory or file that cannot be opened.
pub fn authority(error: &AuthorityError) -> Fault {
    let code = match error {
        AuthorityError::Missing { .. } => "missing",
        _ => "io",
    };
    Fault::new(code, with_source(error))
}

/// Converts the error of a project that cannot be opened.
pub fn project(error: &ProjectError) -> Fault {
    match error {
        ProjectError::Authority(error) => match error {
            AuthorityError::Io { source, .. } if may_not_write(source) => authority(error).hint(
                "this user may not write there; what only reads works: `threadkeep list`, `show`, `transcript`",
            ),
            error => authority(error),
        },
        ProjectError::Store(_) => {
            Fault::new("store", with_source(error)).hint("`threadkeep doctor` says more")
        }
        _ => Fault::new("other", with_source(error)),
    }
}

fn may_not_write(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// Converts the error of settings that cannot take effect.
pub fn settings(error: &SettingsError) -> Fault {
    match error {
        SettingsError::Unread { .. } => Fault::new("unread-settings", error.to_string())
            .hint("move it away or empty it: what stands in it would not hold"),
        SettingsError::Library(LibraryError::Invalid { .. }) => {
            Fault::new("invalid", error.to_string())
        }
        _ => Fault::new("settings", error.to_string()),
    }
}

/// Converts the error of a provider that cannot be created.
pub fn provider(failure: &Failure) -> Fault {
    Fault::new(&failure.code, failure.message.clone())
        .hint("`threadkeep doctor` shows every provider and what it lacks")
}

/// Converts the error of a recovery that stopped.
pub fn recovery(error: &RecoverError) -> Fault {
    match error {
        RecoverError::Call(error) => call(error),
        RecoverError::Authority(error) => authority(error),
        _ => Fault::new("other", with_source(error)),
    }
}

/// Returns the message with those of its sources, such as the operating system's.
pub fn with_source(error: &(dyn Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !message.contains(&words) {
            message = format!("{message}: {words}");
        }
        source = cause.source();
    }
    message
}
