//! Converts refusals of the component to faults: the problem, its place, what to do next, and the
//! exit code.

use crate::answer::{CapKind, CapSource};
use crate::contract::{
    CallError, CallRefusal, RefusalKind, RunLease, Thread, ThreadLimits, UnixTime,
};
use crate::exit::{CommandExit, CommandFault};
use crate::threads::{HolderLife, ProjectThreads};

/// Most names that a hint lists.
const NAMED_MAX: usize = 10;

/// The reason why a store in memory has no such thread.
pub const MEMORY_STORE_HINT: &str = "--store memory begins empty and keeps nothing: leave it out \
                                     to find what is kept in the project";

/// Advice where a project has two stores.
pub const TWO_STORES_HINT: &str = "--store sqlite or --store files names the one that counts";

/// Advice where files of a store are missing, torn or edited.
pub const DAMAGED_STORE_HINT: &str = "keep a copy of .ai/threads and put back what is missing or \
                                      damaged from a backup; `threadkeep audit` says then whether \
                                      all is there";

/// Code of the refusal of a call because the store itself is damaged, and not one of its records.
const DAMAGED_STORE: &str = "corrupt";

/// Code of the refusal of a message for which an inbox has no room.
const INBOX_FULL: &str = "inbox_full";

/// Converts the error of a call of the component.
pub fn from_call(error: &CallError) -> CommandFault {
    let refusal = match error {
        CallError::Refused(refusal) => refusal,
        CallError::Failed(fault) => return fault.clone(),
    };
    let fault = CommandFault {
        exit: exit_for(refusal),
        ..CommandFault::new(described_code(refusal), refusal.message.clone())
    };
    let own = Some(refusal.advice.clone()).filter(|own| !own.is_empty());
    match advice(refusal).or(own) {
        Some(hint) => fault.with_hint(hint),
        None => fault,
    }
}

/// Returns the stable code of a refusal: its kind, or the code of a failure that has no kind.
pub(super) fn described_code(refusal: &CallRefusal) -> &str {
    match refusal.kind {
        RefusalKind::Other => &refusal.code,
        kind => kind.as_str(),
    }
}

fn exit_for(refusal: &CallRefusal) -> CommandExit {
    match refusal.kind {
        RefusalKind::Busy | RefusalKind::Exists | RefusalKind::Fenced | RefusalKind::Conflict => {
            CommandExit::Busy
        }
        RefusalKind::Exceeded if refusal.code == INBOX_FULL => CommandExit::Busy,
        RefusalKind::Exceeded => CommandExit::Suspended,
        RefusalKind::Invalid
        | RefusalKind::NotFound
        | RefusalKind::Deleted
        | RefusalKind::Continued
        | RefusalKind::Refused
        | RefusalKind::Unavailable
        | RefusalKind::Unknown
        | RefusalKind::Full
        | RefusalKind::Corrupt
        | RefusalKind::Other => CommandExit::Error,
    }
}

/// Makes the fault of an image that is not stored, by the code of its error.
pub fn from_blob(code: &str, message: String) -> CommandFault {
    let fault = CommandFault::new(code, message);
    match code {
        "unavailable" => fault.with_hint("try again"),
        _ => fault,
    }
}

/// Returns what to do, where a command knows more than the description of the error.
fn advice(refusal: &CallRefusal) -> Option<String> {
    let words = match refusal.kind {
        RefusalKind::Exists => {
            let id = refusal.thread.as_deref().unwrap_or_default();
            return Some(format!(
                "choose another id, which differs in more than upper and lower case, or see \
                 `threadkeep show {id}`"
            ));
        }
        RefusalKind::NotFound if refusal.text("nearest").is_none() => match refusal.code.as_str() {
            "thread" => "`threadkeep list` shows those that there are",
            "directive" => "a directive is a file .ai/directives/NAME.md",
            "model" => "`threadkeep doctor` shows the models and tiers that there are",
            _ => return None,
        },
        RefusalKind::Fenced | RefusalKind::Conflict => {
            "`threadkeep show THREAD` says how it stands"
        }
        RefusalKind::Busy => "try again later, or `recover` if its holder died",
        RefusalKind::Unknown => "repeat the same command: it finds out and does nothing twice",
        RefusalKind::Exceeded if refusal.code == INBOX_FULL => {
            "send it again once the thread has taken its messages"
        }
        RefusalKind::Exceeded => {
            "raise the cap: `threadkeep raise THREAD`, then `threadkeep resume THREAD`"
        }
        RefusalKind::Other => return advice_by_code(&refusal.code).map(str::to_owned),
        RefusalKind::Corrupt if refusal.code == DAMAGED_STORE => DAMAGED_STORE_HINT,
        RefusalKind::Corrupt => {
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

/// Converts the error of a call about a thread of an open project: adds who holds it, or where else
/// to look.
pub fn from_thread_call(
    opened: &impl ProjectThreads,
    thread: &str,
    error: &CallError,
) -> CommandFault {
    let mut fault = from_call(error);
    let Some(refusal) = error.refusal() else {
        fault.hint = fault.hint.map(|hint| hint.replace("THREAD", thread));
        return fault;
    };
    match refusal.kind {
        RefusalKind::Busy => {
            let lease = refusal.lease();
            fault.hint = lease.map(|lease| busy_hint(opened, &lease)).or(fault.hint);
        }
        RefusalKind::NotFound if opened.is_memory_only() => {
            fault.hint = Some(MEMORY_STORE_HINT.to_owned());
        }
        RefusalKind::NotFound if opened.is_empty() => {
            let hint =
                "this project has no store yet: `threadkeep run DIRECTIVE` makes its first thread";
            fault.hint = Some(hint.to_owned());
        }
        RefusalKind::Exceeded if refusal.code != INBOX_FULL => {
            let cap = CapKind::from_code(&refusal.code).unwrap_or(CapKind::Spend);
            // For money the cause names what is left, not the cap that limits it.
            let bound = match cap {
                CapKind::Spend => CapSource::Thread,
                cap => cap_source_at(opened, cap, refusal.number("maximum")),
            };
            // A raise that the account above refused cannot be repeated unchanged.
            fault.hint = Some(match refusal.text("account") {
                Some(_) => format!("threadkeep raise {thread} --spend USD --through"),
                None => cap.advice(thread, bound),
            });
        }
        _ => fault.hint = fault.hint.map(|hint| hint.replace("THREAD", thread)),
    }
    fault
}

/// Returns whose cap a suspended thread has reached.
pub fn cap_source(opened: &impl ProjectThreads, thread: &Thread) -> CapSource {
    let code = thread.cause.as_ref().map(|cause| cause.code.as_str());
    let Some(cap) = code.and_then(CapKind::from_code) else {
        return CapSource::Thread;
    };
    cap_source_at(opened, cap, cap_of(&thread.limits, cap))
}

/// Returns the cap of this kind.
pub fn cap_of(limits: &ThreadLimits, cap: CapKind) -> Option<u64> {
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
fn cap_source_at(opened: &impl ProjectThreads, cap: CapKind, own: Option<u64>) -> CapSource {
    match (opened.policy_cap(cap.as_str()), own) {
        (Some(most), Some(own)) if most == own => CapSource::Both,
        (Some(most), own) if own.is_none_or(|own| most < own) => CapSource::Policy,
        _ => CapSource::Thread,
    }
}

/// Returns true if the process of a holder is known to be dead.
pub fn is_dead(opened: &impl ProjectThreads, lease: &RunLease) -> bool {
    opened.holder_life(lease) == HolderLife::Dead
}

/// Returns true if the process of a holder is known to live.
pub fn is_alive(opened: &impl ProjectThreads, lease: &RunLease) -> bool {
    matches!(opened.holder_life(lease), HolderLife::Lives(_))
}

/// Advises what to do about a thread that another process holds.
pub fn busy_hint(opened: &impl ProjectThreads, lease: &RunLease) -> String {
    match opened.holder_life(lease) {
        HolderLife::Dead => format!(
            "its process is dead: `threadkeep resume {}` goes on with it",
            lease.thread
        ),
        HolderLife::Lives(lock) => format!(
            "its process is alive, for {lock} is locked: wait for it, or end it with \
             `threadkeep cancel`; if another program keeps that lock: `threadkeep recover --dead \
             {}`",
            lease.holder
        ),
        HolderLife::Unknown => unknown_holder_hint(lease, opened.now()),
    }
}

/// Advises what to do about a thread whose holder may be alive or not.
fn unknown_holder_hint(lease: &RunLease, now: UnixTime) -> String {
    let holder = &lease.holder;
    match lease.expiry < now {
        true => format!(
            "its lease has ended, and nobody goes on with it: `threadkeep recover --dead {holder}` \
             ends its run"
        ),
        false => {
            format!("wait for it; if its host is gone: `threadkeep recover --dead {holder}`")
        }
    }
}

/// Converts the error of a call that names something of the library; a missing name gets a list of
/// those that exist.
pub fn from_named_call(opened: &impl ProjectThreads, error: &CallError) -> CommandFault {
    let fault = from_call(error);
    let missing = match error.refusal() {
        Some(missing) if missing.kind == RefusalKind::NotFound => missing,
        Some(wrong) if wrong.kind == RefusalKind::Invalid && fault.hint.is_none() => {
            let field = wrong.text("field").unwrap_or_default();
            return match field.strip_prefix("inputs.") {
                // A missing input has no value; for an unknown input the value is its name.
                Some(name) if wrong.text("value").is_none_or(str::is_empty) => {
                    fault.with_hint(format!("give it with --input {name}=VALUE"))
                }
                Some(_) | None => fault,
            };
        }
        _ => return fault,
    };
    if missing.text("nearest").is_some() {
        return fault;
    }
    let names = opened.library_names(&missing.code);
    if names.is_empty() {
        return fault;
    }
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    fault.with_hint(format!("there are: {}{more}", shown.join(", ")))
}

/// The fault of what another process holds.
pub fn busy(message: impl Into<String>) -> CommandFault {
    CommandFault {
        exit: CommandExit::Busy,
        ..CommandFault::new("busy", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease that has ended is not waited for: nothing ends it by itself.
    #[test]
    fn ended_lease_is_recovered_and_not_waited_for() {
        let at = |seconds| UnixTime { seconds, nanos: 0 };
        let lease = RunLease {
            thread: "a".to_owned(),
            holder: "p/1".to_owned(),
            expiry: at(100),
        };
        for (now, waits) in [(99, true), (100, true), (101, false)] {
            let hint = unknown_holder_hint(&lease, at(now));
            assert_eq!(hint.contains("wait for it"), waits, "{hint}");
            assert!(hint.contains("`threadkeep recover --dead p/1`"), "{hint}");
        }
    }
}
