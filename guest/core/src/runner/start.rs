//! Start: the first step of a run, or the next one of a run that stopped, in place.

use super::Decision;
use super::admit::{admit, cap_reached, hand_out, opening};
use super::signal::mail_write;
use super::submit::{Mail, take_mail};
use crate::error::Error;
use crate::history::{Event, Message, Reason, Resumed};
use crate::plan::{Change, Loaded, Moment};
use crate::settings::Pin;
use crate::thread::{Counters, Status, StepKind};
use crate::{estimate, id, key, plan};

/// Longest holder and longest request name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// What a driver asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRequest<'a> {
    /// A user's message, or none to try again.
    pub input: Option<Message>,
    /// `<process nonce>/<n>`.
    pub holder: &'a str,
    /// Name of the request.
    pub key: &'a str,
    /// Mail that waits.
    pub mail: Vec<Mail>,
}

/// Begin a run, or go on in place. `pin` is the one the thread has, or a new one (`fresh`: its text and hash).
pub fn start(
    loaded: &Loaded,
    pin: &Pin,
    fresh: Option<(String, String)>,
    request: StartRequest<'_>,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    for (field, name) in [("holder", request.holder), ("key", request.key)] {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(Error::invalid(
                field,
                name,
                "must be 1 to 128 bytes without control characters",
            ));
        }
    }
    if let Some(decision) = allowed(loaded, &request)? {
        return Ok(decision);
    }
    let mut change = Change::new(loaded, moment);
    let was = change.head.status;
    begin(&mut change, pin, fresh, &request);
    let reason = if request.input.is_some() || was != Status::Suspended {
        Reason::UserMessage
    } else {
        Reason::Resumed
    };
    if let Some(cause) = change.head.cause.take() {
        change.push(Event::Resumed(Resumed { code: cause.code }));
    }
    match change.head.round.is_some() {
        true => hand_out_round(&mut change, pin, request.input)?,
        false => {
            take_mail(&mut change, request.mail);
            speak(&mut change, loaded, request.input)?;
            admit(&mut change, pin);
        }
    }
    // A start is something new, also when it comes no further than a suspension: the margin is not for it.
    change.closing = false;
    Ok(Decision::Commit(Box::new(change.into_plan(reason)?)))
}

/// What the model is to answer: the input, mail that was just taken, a message that was sent while nobody ran the
/// thread, or a directive's opening.
fn speak(change: &mut Change<'_>, loaded: &Loaded, input: Option<Message>) -> Result<(), Error> {
    let head = &loaded.head.value;
    let taken = change.events.iter().any(|event| event.kind() == "message");
    let nothing_said = head.prefix.is_empty() && !taken;
    let sent = head.due == Some(0);
    match (input, head.status) {
        (Some(message), _) => {
            change.push(Event::Message(message));
        }
        (None, Status::Created) if nothing_said && change.thread.directive.is_some() => {
            change.push(Event::Message(opening()));
        }
        (None, Status::Created) if nothing_said => return Err(needs_input(loaded)),
        (None, Status::Idle) if !taken && !sent => return Err(needs_input(loaded)),
        (None, _) => {}
    }
    Ok(())
}

fn needs_input(loaded: &Loaded) -> Error {
    Error::invalid(
        "input",
        "",
        format!(
            "is missing: {} has no message to answer",
            loaded.thread.value.id
        ),
    )
}

/// May it start? A repeated request by the same holder gets the same answer.
fn allowed(loaded: &Loaded, request: &StartRequest<'_>) -> Result<Option<Decision>, Error> {
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    let refuse = |advice: &str| {
        Err(Error::Refused {
            thread: thread.id.clone(),
            status: head.status.to_string(),
            advice: advice.into(),
        })
    };
    match head.status {
        Status::Created | Status::Idle => {}
        Status::Suspended => {
            if let Some(cause) = cap_reached(head) {
                return Err(Error::Exceeded(cause));
            }
        }
        Status::Running => {
            let same = head.holder.as_deref() == Some(request.holder)
                && head.request.as_deref() == Some(request.key);
            return if same {
                Ok(Some(Decision::Repeat))
            } else {
                Err(busy(loaded))
            };
        }
        Status::Waiting => return refuse("claim it: it goes on by itself"),
        Status::Completed | Status::Error | Status::Cancelled | Status::Killed => {
            return refuse("it has ended: start a new thread");
        }
        Status::Continued => return refuse("it was continued by the next thread of its chain"),
    }
    if loaded.chain.value.account.frozen {
        return refuse("its account is frozen");
    }
    Ok(None)
}

pub(super) fn busy(loaded: &Loaded) -> Error {
    let head = &loaded.head.value;
    Error::Busy {
        thread: loaded.thread.value.id.clone(),
        holder: head.holder.clone().unwrap_or_default(),
        expiry: head.expiry.unwrap_or(head.updated),
    }
}

fn begin(
    change: &mut Change<'_>,
    pin: &Pin,
    fresh: Option<(String, String)>,
    request: &StartRequest<'_>,
) {
    let was = change.head.status;
    if let Some((text, hash)) = fresh {
        let root = id::key(&change.thread.chain);
        let key = key::join(&[&root, &hash]);
        change.extra.push(plan::Write::Put {
            collection: key::PIN,
            key,
            expect: plan::Expect::Any,
            value: text,
        });
        change.thread.pin = Some(hash);
        change.thread.capabilities = pin.capabilities.clone();
        if was == Status::Created {
            change.thread.limits = pin.limits;
            change.head.limits = pin.limits;
            change.chain.account.limit = pin.limits.spend;
        }
    }
    let head = &mut change.head;
    if was != Status::Suspended {
        head.run += 1;
        head.counters = Counters {
            run_turns: 0,
            run_tokens: 0,
            run_duration: 0,
            ..head.counters
        };
        head.bad_rounds = 0;
    }
    if was == Status::Idle {
        change.chain.account.users += 1;
    }
    if head.context == 0 {
        let schemas: u64 = pin
            .tools
            .iter()
            .map(|tool| estimate::tokens(&tool.schema) + estimate::tokens(&tool.description))
            .sum();
        head.context = estimate::tokens(&pin.prompt).saturating_add(schemas);
    }
    head.token += 1;
    head.lost = 0;
    head.holder = Some(request.holder.to_owned());
    head.request = Some(request.key.to_owned());
}

/// Calls that were open when the run stopped are handed out again; a message waits until they have results.
fn hand_out_round(change: &mut Change<'_>, pin: &Pin, input: Option<Message>) -> Result<(), Error> {
    if let Some(message) = input {
        mail_write(change, &message)?;
    }
    let slowest = pin
        .tools
        .iter()
        .map(|tool| tool.timeout)
        .max()
        .unwrap_or(crate::settings::TOOL_MILLIS);
    hand_out(change, StepKind::CallTools, slowest);
    Ok(())
}
