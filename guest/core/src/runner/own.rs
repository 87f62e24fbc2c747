//! External loops: a host holds a thread, runs it with a loop of its own instead of the runner,
//! appends, and closes it again.
//!
//! The thread is held as in a run, by a lease and a token, with the pending step `own-loop`, which
//! no driver performs. Each commit of the loop renames the step, so that a watcher sees it move.

use super::Decision;
use super::admit::{hand_out_until, lease};
use super::mail::{Mail, take_mail};
use super::round::name_of;
use super::start::{allowed, check_name, ended, refused, take};
use super::stop::{complete, end_by, fail, interrupt, rest};
use super::{NAME_OF_OPEN, OPEN_MILLIS_MAX, RESULT_BYTES_MAX};
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{Answer, Entry, Reason, escaped_bytes};
use crate::json::{self, record::record};
use crate::plan::{Change, Loaded, Moment};
use crate::thread::{Cause, Status, StepKind};
use crate::time::Instant;

/// Longest message of an error that ends a thread, in bytes.
const MESSAGE_BYTES_MAX: usize = 1_000;
/// Longest code of one, in bytes.
const CODE_BYTES_MAX: usize = 64;

/// Leases a thread to an external loop until the deadline; its holder may move the deadline.
pub fn open(
    loaded: &Loaded,
    holder: &str,
    deadline: Instant,
    mail: Vec<Mail>,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    check_name("holder", holder)?;
    check_deadline(deadline, moment)?;
    let head = &loaded.head.value;
    let mut change = Change::with(loaded, mail, moment);
    if let (true, Some(step)) = (head.is_own_loop(), &mut change.head.step)
        && head.holder.as_deref() == Some(holder)
    {
        if step.deadline == deadline {
            return Ok(Decision::Repeat);
        }
        step.deadline = deadline;
        lease(&mut change, deadline);
        return Ok(Decision::Commit(Box::new(change.into_head_plan()?)));
    }
    allowed(loaded, false, moment.ceiling)?;
    take(&mut change, holder, NAME_OF_OPEN)?;
    hand_out_until(&mut change, StepKind::OwnLoop, deadline);
    if change.head.round.is_none() {
        take_mail(&mut change);
    }
    let plan = change.into_plan(Reason::Opened)?;
    Ok(Decision::Commit(Box::new(plan)))
}

/// Checks that the deadline is after now, and at most [`OPEN_MILLIS_MAX`] away.
pub(super) fn check_deadline(deadline: Instant, moment: Moment<'_>) -> Result<(), Error> {
    if deadline > moment.now && deadline <= moment.now.plus_millis(OPEN_MILLIS_MAX) {
        return Ok(());
    }
    let now = moment.now.rfc3339();
    let problem = format!("must be after now, {now}, and at most an hour away");
    Err(Error::invalid("deadline", &deadline.rfc3339(), problem))
}

/// Checks that the holder of this token may write: an external loop holds the thread, with this
/// token.
pub(super) fn held(loaded: &Loaded, token: u64) -> Result<(), Error> {
    let head = &loaded.head.value;
    if token != head.token {
        return Err(Error::Fenced {
            expected: token,
            actual: head.token,
        });
    }
    match head.status {
        Status::Running if head.is_own_loop() => Ok(()),
        Status::Running => Err(refused(loaded, "a driver runs it: its steps are submitted")),
        status if status.is_end() => Err(ended(loaded, "it has ended: start a new thread")),
        _ => Err(refused(loaded, "its hold is over: open it again")),
    }
}

/// The way in which a host ends its loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The thread takes the next input.
    Idle,
    /// The thread ends well, with this result (JSON).
    Completed(Option<String>),
    /// The thread ends by an error: the result (JSON), and its parsed form.
    Failed(String, Failed),
}

/// An error that ends a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Code, 1 to 64 of `[a-z0-9_]`.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

record!(read Failed { code, message });

impl Ending {
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
            ("error", result) => failed(result.unwrap_or_default()),
            _ => {
                let names = ["idle", "completed", "error"];
                let problem = "is not how a hold ends: idle, completed or error";
                Err(Error::unknown("outcome", outcome, problem, &names))
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

fn failed(text: String) -> Result<Ending, Error> {
    let wrong = |problem: &str| Err(Error::invalid("result", &text, problem));
    let Ok(failed) = json::read::<Failed>(&text) else {
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
    Ok(Ending::Failed(text, failed))
}

/// Ends an external loop. `round` is the entry that holds the open calls, `newest` the newest entry
/// apart from later corrections of usage.
pub fn close(
    loaded: &Loaded,
    round: Option<&Entry>,
    newest: Option<&Entry>,
    (token, ending): (u64, Ending),
    mail: Vec<Mail>,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let head = &loaded.head.value;
    let digest = ending.digest();
    let answers = newest.and_then(|entry| entry.answers.as_ref());
    if head.step.is_none() && token == head.token && answers.is_some_and(|a| a.hash == digest) {
        return Ok(Decision::Repeat);
    }
    held(loaded, token)?;
    let completed = matches!(ending, Ending::Completed(_));
    if completed && head.mail() > 0 && head.intent.is_none() {
        let advice = "messages were sent to it and wait: take them with an append, then close it";
        return Err(refused(loaded, advice));
    }
    let mut change = Change::with(loaded, mail, moment);
    change.answers = Some(Answer {
        version: head.version,
        hash: digest,
    });
    interrupt(&mut change, |_| true, &|index| name_of(round, index));
    let plan = if let Some(intent) = change.head.intent {
        end_by(&mut change, intent);
        change.into_plan(Reason::Cancelled)?
    } else {
        let taken = take_mail(&mut change) > 0;
        let reason = end(&mut change, ending, taken);
        change.into_plan(reason)?
    };
    Ok(Decision::Commit(Box::new(plan)))
}

/// Ends the loop; a message that was `taken` out of the inbox makes an idle thread due.
fn end(change: &mut Change<'_>, ending: Ending, taken: bool) -> Reason {
    match ending {
        Ending::Idle => {
            rest(change);
            if taken {
                change.head.due = Some(0);
            }
            Reason::RunFinished
        }
        Ending::Completed(result) => {
            complete(change, result);
            Reason::RunFinished
        }
        Ending::Failed(text, Failed { code, message }) => {
            fail(change, Cause::new("error", &code, message), text);
            Reason::Error
        }
    }
}
