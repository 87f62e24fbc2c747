//! The commit that hands a thread off: it closes the link, makes the next one with the context that
//! it begins with, and admits the first attempt there, all or nothing.
//!
//! The plans of these are joined. Each is decided from the records as the one before leaves them.
//! The successor carries what belongs to the run and the chain: number and counters of the run,
//! token and holder, mail, caps, and what the chain has spent. The account and the wait of a parent
//! go by chain, so neither is touched.

use super::admission::{AttemptAdmission, AttemptNeeds, add_fixed_parts, admit_attempt};
use super::ending::{release_lease, suspend};
use super::hand_off_terms::{CarryTerms, PreparedHandOff, SummaryProblem, impossible_cause};
use super::mail::take_mail;
use crate::continuation::{
    CONTINUE_MESSAGE, LiveWindow, TrailingRefusal, TrailingSelection, WindowEntry, context_texts,
    cut_summary, select_trailing,
};
use crate::error::Error;
use crate::estimate::{TokenScale, estimate_tokens};
use crate::history::{CommitReason, ContextInjected, Event, MessageRole, ThreadHandoff};
use crate::plan::{CommitPlan, DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::thread::{
    BasePart, Head, HistoryBase, InboxMessage, LinkSuccessor, ThreadStatus, WindowCount,
    open_successor,
};
use crate::{hash, id};

/// Beginning of a user's message as a provider is sent it.
const USER_MESSAGE: &str = r#"{"role":"user""#;

/// The context that a successor begins with.
struct CarriedContext {
    trailing: TrailingSelection,
    summary: Option<String>,
    problem: Option<SummaryProblem>,
}

/// Makes the plan that hands a thread off; or the one that suspends it, where not even the least
/// that must be carried fits.
pub(super) fn hand_off(
    mut change: ThreadChange<'_>,
    pin: &PinnedSettings,
    window: &LiveWindow,
    prepared: PreparedHandOff,
) -> Result<Box<CommitPlan>, Error> {
    let loaded = change.loaded_thread();
    change.count_messages();
    change.apply_reported_usage();
    let pending = WindowEntry::pending(&change.thread.id, change.version(), &change.events);
    let terms = CarryTerms::new(&change.head, pin);
    let carried = match choose_context(&terms, window, &pending, prepared) {
        Ok(carried) => carried,
        Err(refusal) => {
            change.head.phase = None;
            suspend(&mut change, impossible_cause(refusal, pin));
            return change.into_plan(CommitReason::Suspended);
        }
    };
    let moment = change.moment();
    let mail = std::mem::take(&mut change.mail);
    let run = change.head.clone();
    let directive = change.thread.directive.as_deref();
    let next = id::generate_id(directive, moment.now, moment.commit);
    close_link(&mut change, &next, &carried);
    let closing = change.into_plan(CommitReason::Handoff)?;
    let base = |tip: &LoadedThread| base_of(tip, &next, &carried.trailing);
    let draw = (moment.ceiling, true);
    let LinkSuccessor { plan, mut loaded } =
        open_successor(loaded, *closing, &base, draw, moment.now)?;
    carry_run(loaded.head.value_mut(), &run, pin);
    loaded.head.value_mut().carried_turns = carried.trailing.turns;
    let first = open_link(&loaded, &carried, moment)?;
    let mut opened = first.apply_to(&loaded)?;
    count_carried(
        opened.head.value_mut(),
        &carried.trailing,
        run.token_scale(),
    );
    let last = carried.trailing.texts.last();
    let asked_last = last.is_some_and(|text| text.starts_with(USER_MESSAGE));
    let second = begin_turn(&opened, pin, mail, asked_last, moment)?;
    Ok(plan.join(first)?.join(second)?)
}

/// Chooses what the successor begins with. A summary for which there is no room beside the least
/// that must be carried is left out.
fn choose_context(
    terms: &CarryTerms,
    window: &LiveWindow,
    pending: &WindowEntry,
    prepared: PreparedHandOff,
) -> Result<CarriedContext, TrailingRefusal> {
    let PreparedHandOff {
        summary,
        mut problem,
    } = prepared;
    let mut summary = summary.map(|summary| cut_summary(&summary, terms.summary_tokens));
    let mut selected = select_trailing(window, pending, terms.bounds(summary.as_deref()));
    if summary.is_some() && selected.is_err() {
        summary = None;
        let why = "there is no room for the summary beside what must be carried";
        problem = Some(why.into());
        selected = select_trailing(window, pending, terms.bounds(None));
    }
    Ok(CarriedContext {
        trailing: selected?,
        summary,
        problem,
    })
}

/// Closes the link: its last entry names the next one.
fn close_link(change: &mut ThreadChange<'_>, next: &str, carried: &CarriedContext) {
    let summary = carried.summary.as_deref();
    change.push_event(Event::ThreadHandoff(ThreadHandoff {
        new_thread_id: next.to_owned(),
        trailing_turns: carried.trailing.turns,
        summary_generated: summary.is_some(),
        summary_tokens: summary.map_or(0, estimate_tokens),
        summary_problem: carried.problem.clone().map(SummaryProblem::into_text),
    }));
    release_lease(change, ThreadStatus::Continued);
    change.head.cause = None;
    change.head.phase = None;
    // The successor takes what follows.
    change.head.carried_spend = None;
    change.head.mail_from = change.head.mail_to;
    let thread = change.thread_mut();
    thread.next = Some(next.to_owned());
    thread.outcome = Some(ThreadStatus::Continued);
}

/// Returns the base of the successor: its own first entry, then what it carries.
fn base_of(
    tip: &LoadedThread,
    next: &str,
    trailing: &TrailingSelection,
) -> Result<Option<HistoryBase>, Error> {
    let head = &tip.head.value;
    let first = head.version + 1;
    let mut parts = vec![BasePart {
        thread: next.to_owned(),
        from: first,
        to: first,
        hash: String::new(),
    }];
    parts.extend(trailing.parts.iter().cloned());
    if let Some(last) = parts.last_mut() {
        // The closing entry was not written when the window was read.
        last.hash.clone_from(&head.hash);
    }
    Ok(Some(HistoryBase {
        length: head.version,
        parts,
    }))
}

/// Gives the head of the successor what belongs to the run and the chain.
fn carry_run(head: &mut Head, run: &Head, pin: &PinnedSettings) {
    head.token = run.token;
    head.holder.clone_from(&run.holder);
    head.request.clone_from(&run.request);
    head.bad_rounds = run.bad_rounds;
    head.lost = run.lost;
    head.mail_from = run.mail_from;
    head.mail_to = run.mail_to;
    head.hand_offs = run.hand_offs + 1;
    head.shortened = run.phase.as_ref().is_some_and(|phase| phase.overflow);
    head.prefix = String::new();
    head.set_window_count(WindowCount::default());
    add_fixed_parts(head, pin);
}

/// Makes the first own entry of the successor: what it is sent before all that it carries.
fn open_link(
    created: &LoadedThread,
    carried: &CarriedContext,
    moment: DecisionContext<'_>,
) -> Result<Box<CommitPlan>, Error> {
    let mut change = ThreadChange::new(created, moment);
    let summary = carried.summary.as_deref();
    let why = carried.problem.as_ref();
    let why = why.map_or("", |problem| &problem.why);
    let next_is_user = carried.trailing.starts_with_user || carried.trailing.texts.is_empty();
    for (role, text) in context_texts(summary, why, next_is_user) {
        change.push_event(inject_message(role, text));
    }
    change.into_plan(CommitReason::Resumed)
}

fn inject_message(role: MessageRole, text: impl Into<String>) -> Event {
    Event::ContextInjected(ContextInjected {
        role,
        text: text.into(),
    })
}

/// Adds the carried messages to what a provider is sent, and scales the whole as the provider has
/// counted so far.
fn count_carried(head: &mut Head, trailing: &TrailingSelection, scale: TokenScale) {
    for text in &trailing.texts {
        head.prefix = hash::sha256(&[&head.prefix, text]);
        head.asked = !text.starts_with(r#"{"role":"assistant""#);
        head.add_to_window(text, false);
    }
    head.context = scale.apply(head.estimated);
}

/// Makes the second own entry of the successor: it takes the mail, or tells a directive to go on,
/// unless what is carried ends with a user's message (`asked_last`); and admits the first attempt,
/// or suspends the run where that is refused.
fn begin_turn(
    opened: &LoadedThread,
    pin: &PinnedSettings,
    mail: Vec<InboxMessage>,
    asked_last: bool,
    moment: DecisionContext<'_>,
) -> Result<Box<CommitPlan>, Error> {
    let mut change = ThreadChange::with_mail(opened, mail, moment);
    let mut reason = CommitReason::Resumed;
    if take_mail(&mut change) > 0 {
        reason = CommitReason::UserMessage;
    } else if change.thread.directive.is_some() && !asked_last {
        change.push_event(inject_message(MessageRole::User, CONTINUE_MESSAGE));
    }
    if let AttemptAdmission::Refused(cause) =
        admit_attempt(&mut change, pin, AttemptNeeds::default())
    {
        suspend(&mut change, cause);
        reason = CommitReason::Suspended;
    }
    change.into_plan(reason)
}
