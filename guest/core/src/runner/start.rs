//! Start: the first step of a run, or the next one of a run that stopped, in place.

use super::CommitDecision;
use super::admission::{AttemptNeeds, add_fixed_parts, money_refused_cause, opening_message};
use super::checks::{
    begin_run, check_complete, check_may_start, message_begins_run, require_pin,
    slowest_tool_millis,
};
use super::children::DecisionInputs;
use super::fork::FORKED;
use super::mail::{push_inbox_message, take_mail};
use super::message_ids::remember_message;
use super::outcome::{RunRecords, apply_transition, decide};
use super::transition::{RetryWait, RunTransition};
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{CommitReason, Entry, Event, Message, ResumedEvent, StepAnswer};
use crate::json::{self, JsonValue};
use crate::limits::ThreadCaps;
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::state::find_excess_depth;
use crate::thread::{Head, ThreadStatus};
use crate::{id, key, plan};

/// A driver's request to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRequest<'a> {
    /// A user's message; `None` to try again.
    pub input: Option<Message>,
    /// Name of the holder, `<process nonce>/<n>`.
    pub holder: &'a str,
    /// Name of the request.
    pub key: &'a str,
    /// JSON object: where the run comes from.
    pub about: Option<JsonValue<'static>>,
    /// Mail that waits, and the children of an open wait.
    pub inputs: DecisionInputs,
    /// The entry that holds the open calls, if there are any.
    pub round: Option<&'a Entry>,
}

/// Most bytes of what a caller says about a run.
const ABOUT_BYTES_MAX: usize = 4 << 10;

/// Parses what a caller says about a run.
///
/// # Errors
/// `ErrorKind::Invalid` if it is too long, or is no JSON object.
pub fn parse_about(text: &str) -> Result<JsonValue<'static>, Error> {
    if text.len() > ABOUT_BYTES_MAX {
        let problem = format!("is longer than {ABOUT_BYTES_MAX} bytes");
        return Err(Error::invalid("about", "", problem));
    }
    match json::parse(text) {
        Ok(about @ JsonValue::Object(_)) => match find_excess_depth(&about) {
            None => Ok(about.into_owned()),
            Some(problem) => Err(Error::invalid("about", "", problem)),
        },
        _ => Err(Error::invalid("about", text, "is not a JSON object")),
    }
}

impl StartRequest<'_> {
    /// Checks the names that the caller gives the holder and the request.
    pub(super) fn check_names(&self) -> Result<(), Error> {
        for (field, name) in [("holder", self.holder), ("key", self.key)] {
            id::check_request_name(field, name)?;
        }
        Ok(())
    }

    /// Returns a digest of the input and its origin, by which a repeated request is known.
    pub fn digest(&self) -> String {
        sha256(&[
            "start",
            &json::to_text(&self.input),
            &json::to_text(&self.about),
        ])
    }
}

/// Returns true if a start of this name by this holder is the one whose first step is pending.
pub fn is_repeated_start(head: &Head, holder: &str, request: &str) -> bool {
    head.status == ThreadStatus::Running
        && head.holder.as_deref() == Some(holder)
        && head.request.as_deref() == Some(request)
}

/// Refuses a start that is repeated after its commit has handed the thread off, if its input
/// differs. `closing` is the entry that closed the thread.
///
/// # Errors
/// `ErrorKind::Conflict` about `input`.
pub fn check_handed_off_start(
    closing: Option<&Entry>,
    request: &StartRequest<'_>,
) -> Result<(), Error> {
    check_repeated_input(closing, &request.digest())
}

/// Refuses a repeated start whose input differs. `first` is the entry that the start before has
/// made; earlier programs kept no digest in it.
fn check_repeated_input(first: Option<&Entry>, digest: &str) -> Result<(), Error> {
    match first.and_then(|entry| entry.answers.as_ref()) {
        Some(before) if before.hash != digest => Err(Error::conflict(
            "input",
            digest.to_owned(),
            before.hash.clone(),
        )),
        _ => Ok(()),
    }
}

/// Begins a run, or resumes one in place. `pin` is the pin that the thread has, or a new one
/// (`fresh`: its text and hash); a thread that can be started has one. `first` is the entry of the
/// pending step, where the start is a repeated one.
pub fn start(
    loaded: &LoadedThread,
    pin: Option<&PinnedSettings>,
    fresh: Option<(String, String)>,
    first: Option<&Entry>,
    request: StartRequest<'_>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    request.check_names()?;
    let head = &loaded.head.value;
    let digest = request.digest();
    if is_repeated_start(head, request.holder, request.key) {
        check_repeated_input(first, &digest)?;
        return Ok(CommitDecision::Repeat);
    }
    let new_input = request.input.is_some() && !request.inputs.known_input;
    let begins = (new_input || has_deferred_mail(head)) && message_begins_run(loaded);
    check_may_start(loaded, begins, moment.ceiling)?;
    check_complete(loaded)?;
    let first = FirstStep::ModelCall;
    begin_start(loaded, pin, fresh, (request, first), moment)
}

/// Refuses a message with images for a model that takes none.
fn check_images(input: Option<&Message>, pin: &PinnedSettings) -> Result<(), Error> {
    match input.is_some_and(|input| input.images().next().is_some()) {
        true if !pin.model.images => {
            let problem = "is a model that takes no images: choose one whose entry says \
                           `images: true`";
            Err(Error::invalid("model", &pin.model.name, problem))
        }
        _ => Ok(()),
    }
}

/// The step with which a run begins where no call is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstStep {
    /// The model is called.
    ModelCall,
    /// A wait without a length: the thread is handed off when it is over. It is for a thread that
    /// the same commit creates, whose entries cannot be read yet.
    Pause,
}

/// Decides the first step of a run, or the next one of a run that stopped. The caller has checked
/// that the thread can be started.
pub(super) fn begin_start(
    loaded: &LoadedThread,
    pin: Option<&PinnedSettings>,
    fresh: Option<(String, String)>,
    (request, first): (StartRequest<'_>, FirstStep),
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let head = &loaded.head.value;
    let digest = request.digest();
    let pin = require_pin(loaded, pin)?;
    check_images(request.input.as_ref(), pin)?;
    let mut inputs = request.inputs;
    let input = request.input.filter(|_| !inputs.known_input);
    let mail = std::mem::take(&mut inputs.mail);
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    let was = change.head.status;
    change.about = request.about;
    change.answers = Some(StepAnswer {
        version: head.version,
        hash: digest,
    });
    if let Some(message) = &input {
        remember_message(&mut change, message);
    }
    apply_pin(&mut change, pin, fresh);
    if (input.is_some() || has_deferred_mail(head)) && message_begins_run(loaded) {
        begin_run(&mut change.head);
    }
    acquire_lease(&mut change, request.holder, request.key)?;
    // A thread that had ended goes on without a message where its last call had no answer.
    let goes_on = was == ThreadStatus::Suspended || is_resumed_link(loaded);
    let happened = match input.is_some() || !goes_on {
        true => CommitReason::UserMessage,
        false => CommitReason::Resumed,
    };
    let next = if change.head.round.is_some() {
        // A message waits until the open calls have results.
        if let Some(message) = input {
            push_inbox_message(&mut change, &message)?;
        }
        // The wait has its full time again: resuming a thread resumes its children, too.
        change.head.wait = None;
        RunTransition::Continue {
            wait: inputs.waiting,
            decided: inputs.decided,
            tool_millis: slowest_tool_millis(pin),
        }
    } else {
        let taken = take_mail(&mut change) > 0;
        push_opening(&mut change, loaded, input, taken)?;
        match first {
            FirstStep::ModelCall => RunTransition::CallModel(AttemptNeeds::default()),
            FirstStep::Pause => RunTransition::Retry(RetryWait::default()),
        }
    };
    // No intent waits here: a thread that is to end is not started.
    let records = RunRecords {
        pin: Some(pin),
        round: request.round,
        window: inputs.window.as_ref(),
    };
    let applied = apply_transition(&mut change, records, happened, next)?;
    // A start is new work, even if it gets no further than a suspension: the margin of a full store
    // is not for it.
    change.closing = false;
    decide(change, records, applied)
}

/// Returns true if the thread is a new link that goes on with a conversation.
fn is_resumed_link(loaded: &LoadedThread) -> bool {
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    thread.base.is_some() && head.status == ThreadStatus::Created && !head.prefix.is_empty()
}

/// Returns true if a message came while calls were open: it waits in the inbox until the next
/// start.
fn has_deferred_mail(head: &Head) -> bool {
    head.mail_count() > 0 && head.round.is_some()
}

/// Returns true if a start without input is refused: by a cap, a frozen account, or an end that
/// waits. A driver that begins due threads leaves such a thread out.
pub fn is_start_refused(loaded: &LoadedThread, ceiling: ThreadCaps) -> bool {
    let begins = has_deferred_mail(&loaded.head.value) && message_begins_run(loaded);
    check_may_start(loaded, begins, ceiling).is_err()
}

/// Adds the message that the model is to answer: the input or a directive's opening. None is needed
/// where mail was just `taken`, or where a message was added while the thread was not held. Where
/// all of the mail is lost, the admission reports it.
fn push_opening(
    change: &mut ThreadChange<'_>,
    loaded: &LoadedThread,
    input: Option<Message>,
    taken: bool,
) -> Result<(), Error> {
    let head = &loaded.head.value;
    match (input, head.status) {
        (Some(message), _) => {
            change.push_event(Event::Message(message));
        }
        (None, ThreadStatus::Created | ThreadStatus::Idle) if head.asked || taken => {}
        (None, ThreadStatus::Created)
            if change.thread.directive.is_some() && !is_resumed_link(loaded) =>
        {
            change.push_event(Event::Message(opening_message()));
        }
        (None, ThreadStatus::Created | ThreadStatus::Idle) if !change.lost_mail.is_empty() => {}
        (None, ThreadStatus::Created | ThreadStatus::Idle) => {
            return Err(missing_input_error(loaded));
        }
        // The version that was forked may have nothing to answer.
        (None, _) if is_forked(head) && !head.asked && !taken => {
            return Err(missing_input_error(loaded));
        }
        (None, _) => {}
    }
    Ok(())
}

/// Returns true if a fork of a directive's thread has not gone on yet.
fn is_forked(head: &Head) -> bool {
    head.cause
        .as_ref()
        .is_some_and(|cause| cause.code == FORKED)
}

fn missing_input_error(loaded: &LoadedThread) -> Error {
    Error::invalid(
        "input",
        "",
        format!(
            "is missing, or was taken before: {} has no message to answer",
            loaded.thread.value.id
        ),
    )
}

/// Applies the pin to the thread. A first pin sets its caps, and its prompt counts as context from
/// then on.
fn apply_pin(change: &mut ThreadChange<'_>, pin: &PinnedSettings, fresh: Option<(String, String)>) {
    let first = change.thread.pin.is_none();
    if let Some((text, hash)) = fresh {
        let root = id::key(&change.thread.chain);
        let key = key::join(&[&root, &hash]);
        change.extra.push(plan::StoreWrite::Put {
            collection: key::PIN,
            key,
            expect: plan::WriteCondition::Any,
            value: text,
        });
        let thread = change.thread_mut();
        thread.pin = Some(hash);
        thread.capabilities = pin.capabilities.clone();
        thread.model = pin.model.name.clone();
        if first {
            thread.limits = pin.limits;
            change.head.limits = pin.limits;
            // The money of a child was fixed when it was spawned.
            if change.chain.above.is_empty() {
                change.chain_mut().account.limit = pin.limits.spend;
            }
        }
    }
    if first {
        add_fixed_parts(&mut change.head, pin);
    }
    change.head.window = Some(pin.model.window);
}

/// Gives the lease of the thread to a holder, for a new run or the one that stopped. `request` is
/// the name by which a repeated call is known. An account that was closed while the thread was idle
/// is opened again; if that fails, the error names the amount that is available.
pub(super) fn acquire_lease(
    change: &mut ThreadChange<'_>,
    holder: &str,
    request: &str,
) -> Result<(), Error> {
    let was = change.head.status;
    if let Err(refusal) = change.start_drawing() {
        return Err(Error::exceeded_by(money_refused_cause(change, refusal)));
    }
    let head = &mut change.head;
    if was != ThreadStatus::Suspended {
        begin_run(head);
    }
    head.token += 1;
    head.holder = Some(holder.to_owned());
    head.request = Some(request.to_owned());
    if let Some(cause) = head.cause.take() {
        change.push_event(Event::Resumed(ResumedEvent { code: cause.code }));
    }
    Ok(())
}
