//! Events appended without the runner: by an external loop that holds the thread, or to a thread
//! that no caller holds.
//!
//! The checks keep every history sendable: it begins with a user's message, a call has at most one
//! result, and between a reply with calls and their results stands nothing that a provider would be
//! sent.

use super::checks::{
    ENDED_ADVICE, begin_chat_run, busy_error, check_complete, check_loop_token, refused_error,
};
use super::mail::take_mail;
use super::message_ids::{KnownMessage, is_known_message, message_digest, remember_message};
use super::outcome::apply_waiting_intent;
use super::settlement::record_tool_cost;
use super::{CALLS_MAX, CommitDecision};
use crate::error::Error;
use crate::history::{
    AppendedEvent, AppendedResult, CommitReason, Entry, Event, MessageRole, ProviderRole,
    StepAnswer, ToolResult, ToolResultState, ToolUse, call_id, check_append_bytes, provider_role,
};
use crate::id::check_request_name;
use crate::json;
use crate::plan::{CommitPlan, DecisionContext, LoadedThread, ThreadChange};
use crate::state::StateEdits;
use crate::thread::{CallConsent, InboxMessage, RoundCall, ThreadStatus, ToolRound};

/// A caller's request to append events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendRequest<'a> {
    /// Token of the lease, if the caller holds the thread.
    pub token: Option<u64>,
    /// The version of the history that the caller saw; `None` to append at whichever it is.
    pub expected: Option<u64>,
    /// The caller's name of this append, if it gave one.
    pub request: Option<&'a str>,
    /// SHA-256 of the change as the caller wrote it, with its name.
    pub digest: String,
    /// The events.
    pub events: &'a [AppendedEvent],
    /// The edits of the state.
    pub edits: &'a StateEdits,
    /// All mail that waits.
    pub mail: Vec<InboxMessage>,
    /// Messages that the chain has taken, of those whose ids the events name.
    pub known: Vec<KnownMessage>,
}

/// Decides about an append. `round` is the entry that holds the open calls; `answer` the entry
/// after `expected`, if the history reaches further.
pub fn append(
    loaded: &LoadedThread,
    round: Option<&Entry>,
    answer: Option<&Entry>,
    append: AppendRequest<'_>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let head = &loaded.head.value;
    if let Some(request) = append.request {
        check_request_name("change.request", request)?;
    }
    let expected = append.expected.unwrap_or(head.version);
    let answers = StepAnswer {
        version: expected,
        hash: append.digest,
    };
    // A lease has one holder, and a request one caller. Of two other callers that write the same,
    // the second has not been here before.
    let names_caller = append.token.is_some() || append.request.is_some();
    if names_caller && answer.and_then(|entry| entry.answers.as_ref()) == Some(&answers) {
        return Ok(CommitDecision::Repeat);
    }
    check_may_append(loaded, append.token)?;
    if expected != head.version {
        return Err(Error::conflict(
            "version",
            expected.to_string(),
            head.version.to_string(),
        ));
    }
    let held = append.token.is_some();
    if append.events.is_empty() && append.edits.is_empty() {
        if !held {
            let problem = "must hold at least one event, or the change one edit of the state";
            return Err(Error::invalid("events", "", problem));
        }
        if append.mail.is_empty() || head.incomplete {
            return Ok(CommitDecision::Repeat);
        }
    }
    let (mut known, mut skipped) = (append.known, 0);
    let waits = !append.mail.is_empty();
    let mut change = ThreadChange::with_mail(loaded, append.mail, moment);
    let mut talk = AppendValidator::new(loaded, round)?;
    for (n, given) in (0_usize..).zip(append.events) {
        match take_message_id(&mut change, &mut known, n, given)? {
            true => skipped += 1,
            false => talk.add_event(&mut change, n, given)?,
        }
    }
    let nothing_new = skipped == append.events.len() && append.edits.is_empty();
    if skipped > 0 && nothing_new && !(held && waits) {
        return Ok(CommitDecision::Repeat);
    }
    check_append_bytes(change.events.iter().map(|e| json::to_text(e).len()).sum())?;
    talk.check_named_calls(append.edits)?;
    change.edits = append.edits.clone();
    change.answers = Some(answers);
    let plan = talk.build_plan(change, round, held)?;
    Ok(CommitDecision::Commit(plan))
}

/// Returns true if an event is a message that was taken before; remembers it otherwise, if it has
/// an id.
fn take_message_id(
    change: &mut ThreadChange<'_>,
    known: &mut Vec<KnownMessage>,
    n: usize,
    given: &AppendedEvent,
) -> Result<bool, Error> {
    let AppendedEvent::Event(Event::Message(message)) = given else {
        return Ok(false);
    };
    if is_known_message(&format!("events[{n}]"), message, known)? {
        return Ok(true);
    }
    if let Some(id) = &message.id {
        let (id, digest) = (id.clone(), message_digest(message));
        known.push(KnownMessage { id, digest });
        remember_message(change, message);
    }
    Ok(false)
}

/// Checks who may append: with a token, its holder; without one, any caller while the thread is not
/// held and has not ended.
fn check_may_append(loaded: &LoadedThread, token: Option<u64>) -> Result<(), Error> {
    if let Some(token) = token {
        return check_loop_token(loaded, token);
    }
    let status = loaded.head.value.status;
    if status != ThreadStatus::Running && !status.is_terminal() {
        check_complete(loaded)?;
    }
    match status {
        ThreadStatus::Created | ThreadStatus::Idle | ThreadStatus::Suspended => Ok(()),
        ThreadStatus::Running => Err(busy_error(loaded)),
        ThreadStatus::Waiting => Err(refused_error(loaded, "it goes on by itself: wait for it")),
        ThreadStatus::Completed
        | ThreadStatus::Error
        | ThreadStatus::Cancelled
        | ThreadStatus::Killed
        | ThreadStatus::Continued => Err(refused_error(loaded, ENDED_ADVICE)),
    }
}

/// A call that has no result yet.
struct OpenCall {
    version: u64,
    index: u32,
    name: String,
    id: String,
    idempotent: bool,
    /// True if the call waits for children. It stays a wait whatever is appended.
    waits: bool,
    /// State of the consent that the call needs. No result takes the place of a decision.
    consent: Option<CallConsent>,
}

/// Checker of the order of appended events: the open calls, and the last author.
struct AppendValidator {
    open: Vec<OpenCall>,
    /// Ids of the calls that are open before the append, or made by it.
    known: Vec<String>,
    /// True if the history has a message already.
    begun: bool,
    /// True if the last event of this entry that a provider will see is the assistant's.
    speaking: bool,
    /// Reason of the entry, by that event.
    reason: CommitReason,
}

impl AppendValidator {
    fn new(loaded: &LoadedThread, entry: Option<&Entry>) -> Result<Self, Error> {
        let head = &loaded.head.value;
        let mut open = Vec::new();
        if let Some(round) = &head.round {
            for call in &round.calls {
                let event = entry.and_then(|entry| entry.events.get(call.index as usize));
                let Some(Event::ToolUse(used)) = event else {
                    let place = call_id(round.version, call.index);
                    return Err(Error::corrupt(format!(
                        "the open call {place} is not there"
                    )));
                };
                open.push(OpenCall {
                    version: round.version,
                    index: call.index,
                    name: used.name.clone(),
                    id: used.id.clone(),
                    idempotent: call.idempotent,
                    waits: call.waits,
                    consent: call.consent,
                });
            }
        }
        let known = open
            .iter()
            .map(|call: &OpenCall| call_id(call.version, call.index));
        Ok(Self {
            known: known.collect(),
            open,
            begun: !head.prefix.is_empty(),
            speaking: false,
            reason: CommitReason::Changed,
        })
    }

    /// Adds one event, if it may stand at its place.
    fn add_event(
        &mut self,
        change: &mut ThreadChange<'_>,
        n: usize,
        given: &AppendedEvent,
    ) -> Result<(), Error> {
        let place = format!("events[{n}]");
        match given {
            AppendedEvent::Result(result) => {
                let event = self.close_call(&place, result)?;
                record_tool_cost(change, result.cost);
                change.push_event(event);
            }
            AppendedEvent::Event(event) => {
                self.check_order(&place, event)?;
                let version = change.version();
                if let Event::ToolUse(call) = event {
                    self.add_open_call(&place, version, change.events.len() as u32, call)?;
                }
                change.push_event(event.clone());
            }
        }
        Ok(())
    }

    fn check_order(&mut self, place: &str, event: &Event) -> Result<(), Error> {
        let role = match provider_role(event) {
            // A result was checked on its own.
            None | Some(ProviderRole::Tool) => return Ok(()),
            Some(ProviderRole::User) => MessageRole::User,
            Some(ProviderRole::Assistant) => MessageRole::Assistant,
        };
        let refuse = |problem: &str| Err(Error::invalid(place, "", problem));
        if role == MessageRole::Assistant && !self.begun {
            return refuse(
                "is the assistant's: a history begins with a user's message (mark a greeting as \
                 synthetic)",
            );
        }
        let goes_on = role == MessageRole::Assistant && self.speaking;
        if let (false, Some(open)) = (goes_on, self.open.first()) {
            let call = call_id(open.version, open.index);
            return refuse(&format!(
                "comes before the result of the call {call} ({})",
                open.name
            ));
        }
        self.begun = true;
        self.speaking = role == MessageRole::Assistant;
        self.reason = match role {
            MessageRole::User => CommitReason::UserMessage,
            MessageRole::Assistant => CommitReason::AssistantTurn,
        };
        Ok(())
    }

    fn add_open_call(
        &mut self,
        place: &str,
        version: u64,
        index: u32,
        call: &ToolUse,
    ) -> Result<(), Error> {
        if self.open.len() >= CALLS_MAX {
            let problem = format!("is one call too many: at most {CALLS_MAX} are open at once");
            return Err(Error::invalid(place, "", problem));
        }
        self.known.push(call_id(version, index));
        self.open.push(OpenCall {
            version,
            index,
            name: call.name.clone(),
            id: call.id.clone(),
            // Only the host knows what its tools do.
            idempotent: false,
            waits: false,
            consent: None,
        });
        Ok(())
    }

    /// Checks that edits of the scope of a call name one that is open.
    fn check_named_calls(&self, edits: &StateEdits) -> Result<(), Error> {
        let mut calls = edits.named_calls();
        match calls.find(|(_, call)| !self.known.iter().any(|known| known == call)) {
            None => Ok(()),
            Some((place, call)) => {
                let problem = "is not an open call of the thread";
                Err(Error::invalid(format!("change.{place}"), call, problem))
            }
        }
    }

    /// Closes the open call that a result names, and returns the result as an event.
    fn close_call(&mut self, place: &str, given: &AppendedResult) -> Result<Event, Error> {
        let named = |open: &OpenCall| match (&given.id, given.version, given.index) {
            (Some(id), ..) => *id == open.id || *id == call_id(open.version, open.index),
            (None, version, index) => version == Some(open.version) && index == Some(open.index),
        };
        let mut found = self.open.iter().enumerate().filter(|(_, open)| named(open));
        let (at, second) = (found.next().map(|(at, _)| at), found.next());
        let refuse = |problem: &str| Err(Error::invalid(place, "", problem));
        let Some(at) = at else {
            return refuse("is of no open call: it has a result already, or was never made");
        };
        if second.is_some() {
            return refuse("names more than one open call by its id: name it by version and index");
        }
        if self.open[at].consent == Some(CallConsent::Asked) {
            return refuse("is of a call that waits for a decision: approve, deny or answer it");
        }
        let open = self.open.remove(at);
        if given.name.as_ref().is_some_and(|name| *name != open.name) {
            return refuse(&format!("is named otherwise than its call, {}", open.name));
        }
        (self.speaking, self.reason) = (false, CommitReason::ToolResults);
        Ok(Event::ToolResult(ToolResult {
            version: open.version,
            index: open.index,
            name: open.name,
            text: given.text.clone(),
            failed: given.failed,
            state: given.state.unwrap_or(ToolResultState::Done),
            cost: given.cost,
            blocks: given.blocks.clone(),
        }))
    }

    /// Builds the plan: updates the head, takes the mail, and applies a cancel that waits.
    fn build_plan(
        self,
        mut change: ThreadChange<'_>,
        round: Option<&Entry>,
        held: bool,
    ) -> Result<Box<CommitPlan>, Error> {
        let version = change.version();
        let made_here = self.open.iter().find(|open| open.version == version);
        if let (false, Some(open)) = (held, made_here) {
            let problem = format!(
                "leave the call {} ({}) without a result: add it, or open the thread first",
                call_id(version, open.index),
                open.name
            );
            return Err(Error::invalid("events", "", problem));
        }
        let calls = self.open.iter().map(|open| RoundCall {
            waits: open.waits,
            index: open.index,
            idempotent: open.idempotent,
            consent: open.consent,
        });
        change.head.round = self.open.first().map(|open| ToolRound {
            version: open.version,
            calls: calls.collect(),
        });
        if self.reason != CommitReason::Changed {
            // The provider's session no longer matches the history.
            change.head.session = None;
        }
        if apply_waiting_intent(&mut change, round) {
            return change.into_plan(CommitReason::Cancelled);
        }
        if !held && self.reason == CommitReason::UserMessage {
            begin_chat_run(&mut change);
        }
        let mut taken = false;
        if self.open.is_empty() && !change.head.incomplete {
            taken = take_mail(&mut change) > 0;
        }
        change.count_messages();
        match &mut change.head.step {
            Some(step) => step.version = version,
            None => set_due(&mut change, taken),
        }
        change.into_plan(if taken {
            CommitReason::UserMessage
        } else {
            self.reason
        })
    }
}

/// Sets the due time of a thread that no caller holds: waiting mail makes it due, and a history
/// that needs no reply does not.
fn set_due(change: &mut ThreadChange<'_>, taken: bool) {
    let head = &mut change.head;
    if taken || head.mail_count() > 0 {
        head.mark_due();
    } else if !head.asked && head.status != ThreadStatus::Created {
        head.due = None;
    }
}
