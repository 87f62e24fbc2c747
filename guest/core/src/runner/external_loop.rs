//! External loops: a host holds a thread, runs it with a loop of its own instead of the runner,
//! appends, and closes it again.
//!
//! The thread is held as in a run, by a lease and a token, with the pending step `own-loop`, which
//! no driver performs. Each commit of the loop renames the step, so that a watcher sees it move.
//! Its end gives open calls the result `interrupted`, so the history can always be sent.

use super::admission::{hand_out_step, set_lease};
use super::checks::{check_deadline, check_loop_token, check_may_start, refused_error};
use super::ending::{become_idle, complete_thread, fail_thread};
use super::mail::take_mail;
use super::open_calls::{interrupt_calls, tool_name_of};
use super::outcome::apply_waiting_intent;
use super::start::acquire_lease;
use super::{CommitDecision, OPEN_REQUEST_NAME};
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{CommitReason, Entry, StepAnswer, escaped_bytes};
use crate::id;
use crate::json::{self, record};
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::thread::{InboxMessage, RESULT_BYTES_MAX, StatusCause, StepKind};
use crate::time::UnixTime;

/// Longest message of an error that ends a thread, in bytes.
const MESSAGE_BYTES_MAX: usize = 1_000;
/// Longest code of an error that ends a thread, in bytes.
const CODE_BYTES_MAX: usize = 64;

/// Leases a thread to an external loop until the deadline; its holder may move the deadline.
pub fn open(
    loaded: &LoadedThread,
    holder: &str,
    deadline: UnixTime,
    mail: Vec<InboxMessage>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    id::check_request_name("holder", holder)?;
    check_deadline(deadline, moment)?;
    let head = &loaded.head.value;
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    if let (true, Some(step)) = (head.is_external_loop(), &mut change.head.step)
        && head.holder.as_deref() == Some(holder)
    {
        if step.deadline == deadline {
            return Ok(CommitDecision::Repeat);
        }
        step.deadline = deadline;
        set_lease(&mut change, deadline);
        return Ok(CommitDecision::Commit(change.into_head_plan()?));
    }
    check_may_start(loaded, false, moment.ceiling)?;
    acquire_lease(&mut change, holder, OPEN_REQUEST_NAME)?;
    hand_out_step(&mut change, StepKind::ExternalLoop, deadline);
    if change.head.round.is_none() && !change.head.incomplete {
        take_mail(&mut change);
    }
    let plan = change.into_plan(CommitReason::Opened)?;
    Ok(CommitDecision::Commit(plan))
}

/// The way in which a host ends its loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoopEnding {
    /// The thread takes the next input.
    Idle,
    /// The thread ends well, with this result (JSON).
    Completed(Option<String>),
    /// The thread ends by an error: the result (JSON), and its parsed form.
    Failed(String, LoopFailure),
}

/// An error that ends a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopFailure {
    /// Code, 1 to 64 of `[a-z0-9_]`.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

record!(read LoopFailure { code, message });

impl LoopEnding {
    /// Parses an outcome with its result.
    pub fn parse(outcome: &str, result: Option<String>) -> Result<Self, Error> {
        if let Some(text) = &result {
            check_result(text)?;
        }
        match (outcome, result) {
            ("idle", None) => Ok(Self::Idle),
            ("idle", Some(text)) => {
                Err(Error::invalid("result", &text, "must be none: it goes on"))
            }
            ("completed", result) => Ok(Self::Completed(result)),
            ("error", result) => parse_failure("result", result.unwrap_or_default())
                .map(|(text, failure)| Self::Failed(text, failure)),
            _ => {
                let names = ["idle", "completed", "error"];
                let problem = "is not how an external loop ends: idle, completed or error";
                Err(Error::invalid_name("outcome", outcome, problem, &names))
            }
        }
    }

    /// Returns the digest by which a repeated call is known.
    fn digest(&self) -> String {
        match self {
            Self::Idle => sha256(&["close", "idle"]),
            Self::Completed(None) => sha256(&["close", "completed"]),
            Self::Completed(Some(result)) => sha256(&["close", "completed", result]),
            Self::Failed(result, _) => sha256(&["close", "error", result]),
        }
    }
}

fn check_result(text: &str) -> Result<(), Error> {
    if escaped_bytes(text) > RESULT_BYTES_MAX {
        let problem = format!("is more than {RESULT_BYTES_MAX} bytes as JSON text");
        return Err(Error::invalid("result", "", problem));
    }
    match json::parse(text) {
        Ok(_) => Ok(()),
        Err(wrong) => Err(Error::invalid(
            "result",
            text,
            format!("is not JSON: {wrong}"),
        )),
    }
}

/// Reads the error with which a host ends a thread; `field` names it in refusals. Returns its text,
/// too.
///
/// # Errors
/// `ErrorKind::Invalid`.
pub fn parse_failure(field: &str, text: String) -> Result<(String, LoopFailure), Error> {
    let wrong = |problem: &str| Err(Error::invalid(field, &text, problem));
    let Ok(failed) = json::read::<LoopFailure>(&text) else {
        return wrong("of an error must be {\"code\", \"message\"}");
    };
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let code = &failed.code;
    if code.is_empty() || code.len() > CODE_BYTES_MAX || !code.bytes().all(letter) {
        return wrong("has a code that is not 1 to 64 of a-z, 0-9 and _");
    }
    if failed.message.len() > MESSAGE_BYTES_MAX {
        return wrong("has a message of more than 1000 bytes");
    }
    Ok((text, failed))
}

/// Ends an external loop. `round` is the entry that holds the open calls, `newest` the newest entry
/// apart from later corrections of usage.
pub fn close(
    loaded: &LoadedThread,
    round: Option<&Entry>,
    newest: Option<&Entry>,
    (token, ending): (u64, LoopEnding),
    mail: Vec<InboxMessage>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let head = &loaded.head.value;
    let digest = ending.digest();
    let answers = newest.and_then(|entry| entry.answers.as_ref());
    if head.step.is_none() && token == head.token && answers.is_some_and(|a| a.hash == digest) {
        return Ok(CommitDecision::Repeat);
    }
    check_loop_token(loaded, token)?;
    let completed = matches!(ending, LoopEnding::Completed(_));
    if completed && head.mail_count() > 0 && head.intent.is_none() {
        let advice = "messages were sent to it and wait: take them with an append, then close it";
        return Err(refused_error(loaded, advice));
    }
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    change.answers = Some(StepAnswer {
        version: head.version,
        hash: digest,
    });
    let plan = if apply_waiting_intent(&mut change, round) {
        change.into_plan(CommitReason::Cancelled)?
    } else {
        let events = round.map(|entry| entry.events.as_slice());
        let name = |index| tool_name_of(events, index);
        interrupt_calls(&mut change, |_| true, &name);
        let taken = take_mail(&mut change) > 0;
        let reason = apply_ending(&mut change, ending, taken);
        change.into_plan(reason)?
    };
    Ok(CommitDecision::Commit(plan))
}

/// Ends the loop; a message that was `taken` out of the inbox makes an idle thread due.
fn apply_ending(change: &mut ThreadChange<'_>, ending: LoopEnding, taken: bool) -> CommitReason {
    change.head.incomplete &= matches!(ending, LoopEnding::Failed(..));
    match ending {
        LoopEnding::Idle => {
            become_idle(change);
            if taken {
                change.head.due = Some(0);
            }
            CommitReason::RunFinished
        }
        LoopEnding::Completed(result) => {
            complete_thread(change, result);
            CommitReason::RunFinished
        }
        LoopEnding::Failed(text, LoopFailure { code, message }) => {
            fail_thread(change, StatusCause::new("error", &code, message), text);
            CommitReason::Error
        }
    }
}
