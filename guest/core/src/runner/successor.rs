//! The commit that hands a thread off: it closes the link, makes the next one with the context that
//! it begins with, and admits the first attempt there, all or nothing.
//!
//! The plans of these are joined. Each is decided from the records as the one before leaves them.
//! The successor carries what belongs to the run and the chain: number and counters of the run,
//! token and holder, mail, caps, and what the chain has spent. The account and the wait of a parent
//! go by chain, so neither is touched.

use super::admission::{AttemptAdmission, AttemptNeeds, admit_attempt};
use super::checks::require_pin;
use super::ending::{release_lease, suspend};
use super::handing_off::{impossible_cause, summary_tokens_max, trailing_bounds};
use super::mail::take_mail;
use super::outcome::RunRecords;
use super::start::fixed_tokens;
use crate::continuation::{
    CONTINUE_MESSAGE, HANDOFF_ANSWER, LiveWindow, TrailingMessages, TrailingSelection,
    handoff_context, select_trailing,
};
use crate::error::Error;
use crate::history::{
    CommitReason, ContextInjected, Event, MessageRole, ThreadHandoff, cut_escaped,
};
use crate::plan::{CommitPlan, DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::thread::{
    BasePart, Head, HistoryBase, InboxMessage, StatusCause, Successor, ThreadStatus, open_successor,
};
use crate::{estimate, hash, id};

/// Estimated tokens of the texts that a hand-off adds beside a summary.
pub(super) const CONTEXT_TOKENS: u64 = 300;
/// Most bytes of a summary as JSON text.
const SUMMARY_BYTES_MAX: usize = 256 << 10;

/// A hand-off whose summary is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PreparedHandOff {
    /// The summary, if there is one.
    pub summary: Option<String>,
    /// Reason why a summary that was wanted is missing.
    pub problem: Option<String>,
}

impl PreparedHandOff {
    /// A hand-off without the summary that was wanted, for this reason.
    pub fn without(problem: impl Into<String>) -> Self {
        Self {
            summary: None,
            problem: Some(problem.into()),
        }
    }
}

/// What the successor begins with.
struct CarriedContext {
    trailing: TrailingMessages,
    summary: Option<String>,
    problem: Option<String>,
}

/// Makes the plan that hands a thread off; or the one that suspends it, where not even the least
/// that must be carried fits.
pub(super) fn hand_off(
    mut change: ThreadChange<'_>,
    records: RunRecords<'_>,
    window: &LiveWindow,
    prepared: PreparedHandOff,
) -> Result<CommitPlan, Error> {
    let loaded = change.loaded_thread();
    let pin = require_pin(loaded, records.pin)?;
    change.count_messages();
    change.apply_reported_usage();
    let live = window.with_entry(&change.thread.id, change.version(), &change.events);
    let carried = match choose_context(&change.head, pin, &live, prepared) {
        Ok(carried) => carried,
        Err(cause) => {
            suspend(&mut change, *cause);
            return change.into_plan(CommitReason::Suspended);
        }
    };
    let moment = change.moment();
    let mail = std::mem::take(&mut change.mail);
    let run = change.head.clone();
    let digits = moment.commit.get(..12).unwrap_or(moment.commit);
    let next = id::generate_id(change.thread.directive.as_deref(), moment.now, digits);
    close_link(&mut change, &next, &carried);
    let closing = change.into_plan(CommitReason::Handoff)?;
    let base = |tip: &LoadedThread| base_of(tip, &next, &carried.trailing);
    let draw = (moment.ceiling, true);
    let Successor { plan, mut loaded } =
        open_successor(loaded, closing, &base, draw, moment.now)?;
    carry_run(&mut loaded.head.value, &run, pin);
    let first = open_link(&loaded, &carried, moment)?;
    let mut opened = first.apply_to(&loaded)?;
    count_carried(&mut opened.head.value, &carried.trailing);
    let second = begin_turn(&opened, pin, mail, moment)?;
    Ok(plan.join(first)?.join(second)?)
}

/// Chooses what the successor begins with. A summary for which there is no room beside the least
/// that must be carried is left out.
fn choose_context(
    head: &Head,
    pin: &PinnedSettings,
    live: &LiveWindow,
    prepared: PreparedHandOff,
) -> Result<CarriedContext, Box<StatusCause>> {
    let settings = &*pin.continuation();
    let overflow = head.phase.as_ref().is_some_and(|phase| phase.overflow);
    let PreparedHandOff {
        summary,
        mut problem,
    } = prepared;
    let most = summary_tokens_max(head, pin, settings, overflow);
    let summary = summary.map(|summary| cut_summary(&summary, most));
    let select = |summary: Option<&str>| {
        let tokens = summary.map_or(0, estimate::estimate_tokens);
        let bounds = trailing_bounds(head, pin, settings, tokens, overflow);
        select_trailing(live, bounds)
    };
    let mut kept = summary;
    let mut selected = select(kept.as_deref());
    if kept.is_some() && matches!(selected, TrailingSelection::TooLarge { .. }) {
        kept = None;
        problem = Some("there is no room for the summary beside what must be carried".to_owned());
        selected = select(None);
    }
    match selected {
        TrailingSelection::Part(trailing) => Ok(CarriedContext {
            trailing,
            summary: kept,
            problem,
        }),
        TrailingSelection::Whole => Ok(CarriedContext {
            trailing: TrailingMessages::default(),
            summary: kept,
            problem,
        }),
        TrailingSelection::TooLarge { tokens } => {
            Err(Box::new(impossible_cause(tokens, pin, settings)))
        }
    }
}

/// Cuts a summary to so many tokens.
fn cut_summary(summary: &str, tokens: u64) -> String {
    let whole = cut_escaped(summary.trim(), SUMMARY_BYTES_MAX);
    if estimate::estimate_tokens(whole) <= tokens {
        return whole.to_owned();
    }
    let fits = |end: usize| estimate::estimate_tokens(&whole[..end]) <= tokens;
    let ends: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
    let end = ends.partition_point(|end| fits(*end));
    let end = end.checked_sub(1).map_or(0, |at| ends[at]);
    format!("{}\n(cut here)", &whole[..end])
}

/// Closes the link: its last entry names the next one.
fn close_link(change: &mut ThreadChange<'_>, next: &str, carried: &CarriedContext) {
    let summary = carried.summary.as_deref();
    change.push_event(Event::ThreadHandoff(ThreadHandoff {
        new_thread_id: next.to_owned(),
        trailing_turns: carried.trailing.turns,
        summary_generated: summary.is_some(),
        summary_tokens: summary.map_or(0, estimate::estimate_tokens),
        summary_problem: carried.problem.clone(),
    }));
    release_lease(change, ThreadStatus::Continued);
    change.head.cause = None;
    change.head.phase = None;
    // The successor takes them.
    change.head.mail_from = change.head.mail_to;
    change.thread.next = Some(next.to_owned());
    change.thread.outcome = Some(ThreadStatus::Continued);
}

/// Returns the base of the successor: its own first entry, then what it carries.
fn base_of(
    tip: &LoadedThread,
    next: &str,
    trailing: &TrailingMessages,
) -> Result<Option<HistoryBase>, Error> {
    let head = &tip.head.value;
    let first = head.version + 1;
    let own = BasePart {
        thread: next.to_owned(),
        from: first,
        to: first,
        hash: String::new(),
    };
    let carried = trailing.ranges.iter().map(|(thread, from, to, hash)| BasePart {
        thread: thread.clone(),
        from: *from,
        to: *to,
        // The closing entry was not written when the window was read.
        hash: match *to == head.version {
            true => head.hash.clone(),
            false => hash.clone(),
        },
    });
    Ok(Some(HistoryBase {
        length: head.version,
        parts: std::iter::once(own).chain(carried).collect(),
    }))
}

/// Gives the head of the successor what belongs to the run and the chain.
fn carry_run(head: &mut Head, run: &Head, pin: &PinnedSettings) {
    head.run = run.run;
    head.token = run.token;
    head.holder.clone_from(&run.holder);
    head.request.clone_from(&run.request);
    head.counters.run_turns = run.counters.run_turns;
    head.counters.run_tokens = run.counters.run_tokens;
    head.counters.run_duration = run.counters.run_duration;
    head.bad_rounds = run.bad_rounds;
    head.lost = run.lost;
    head.mail_from = run.mail_from;
    head.mail_to = run.mail_to;
    head.hand_offs = run.hand_offs + 1;
    head.shortened = run.phase.as_ref().is_some_and(|phase| phase.overflow);
    head.context = fixed_tokens(pin);
    head.prefix = String::new();
}

/// Makes the first own entry of the successor: what it is sent before all that it carries.
fn open_link(
    created: &LoadedThread,
    carried: &CarriedContext,
    moment: DecisionContext<'_>,
) -> Result<CommitPlan, Error> {
    let mut change = ThreadChange::new(created, moment);
    let text = handoff_context(carried.summary.as_deref(), carried.problem.as_deref());
    change.push_event(injected(MessageRole::User, text));
    let next = carried.trailing.texts.first();
    if next.is_none_or(|text| text.starts_with(r#"{"role":"user""#)) {
        change.push_event(injected(MessageRole::Assistant, HANDOFF_ANSWER));
    }
    change.into_plan(CommitReason::Resumed)
}

fn injected(role: MessageRole, text: impl Into<String>) -> Event {
    Event::ContextInjected(ContextInjected {
        role,
        text: text.into(),
    })
}

/// Adds the carried messages to what a provider is sent.
fn count_carried(head: &mut Head, trailing: &TrailingMessages) {
    for text in &trailing.texts {
        head.prefix = hash::sha256(&[&head.prefix, text]);
        head.asked = !text.starts_with(r#"{"role":"assistant""#);
        let tokens = estimate::estimate_tokens(text);
        head.context = head.context.saturating_add(tokens);
    }
}

/// Makes the second own entry of the successor: it takes the mail, or tells a directive to go on,
/// and admits the first attempt, or suspends the run where that is refused.
fn begin_turn(
    opened: &LoadedThread,
    pin: &PinnedSettings,
    mail: Vec<InboxMessage>,
    moment: DecisionContext<'_>,
) -> Result<CommitPlan, Error> {
    let mut change = ThreadChange::with_mail(opened, mail, moment);
    let mut reason = CommitReason::Resumed;
    if take_mail(&mut change) > 0 {
        reason = CommitReason::UserMessage;
    } else if change.thread.directive.is_some() {
        change.push_event(injected(MessageRole::User, CONTINUE_MESSAGE));
    }
    if let AttemptAdmission::Refused(cause) =
        admit_attempt(&mut change, pin, AttemptNeeds::default())
    {
        suspend(&mut change, cause);
        reason = CommitReason::Suspended;
    }
    change.into_plan(reason)
}
