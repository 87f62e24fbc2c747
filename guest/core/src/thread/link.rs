//! The next link of a chain: a thread that goes on where the tip ends. The plan that creates it is
//! joined to the plan that closes the tip, so that a chain has one tip at each moment.

use super::create::{absent_thread, begin_thread, creation_context, new_head};
use super::{
    Head, HistoryBase, StateRecord, StateSummary, StatusCause, ThreadRecord, ThreadStatus,
    UsageCounters,
};
use crate::error::Error;
use crate::id;
use crate::ledger::LedgerRefusal;
use crate::limits::ThreadCaps;
use crate::plan::{CommitPlan, LoadedThread, StoredRecord, ThreadChange};
use crate::state::StateDocument;
use crate::time::UnixTime;
use std::rc::Rc;

/// The place of a new link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink<'a> {
    /// The tip of the chain, as the plan leaves it that this one is joined to.
    pub tip: &'a LoadedThread,
    /// The entries that the link rests on, if it rests on any.
    pub base: Option<HistoryBase>,
    /// The operator's upper bounds of caps.
    pub ceiling: ThreadCaps,
    /// True if the tip drew on the account and leaves that to the link: then no account is closed
    /// and opened again, and no money moves.
    pub takes_draw: bool,
}

/// The next link of a chain, before its first step is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSuccessor {
    /// The plan that closes the tip and creates the link.
    pub plan: Box<CommitPlan>,
    /// The link as that plan leaves it. The plan of its first step is decided from this, and
    /// joined.
    pub loaded: LoadedThread,
}

/// Creates the link after a tip in the commit that closes the tip. `closing` is the plan that does
/// so; it names the link as `next` in the record of the tip, and removes from its head what the tip
/// carried: see [`Head::carried_spend`]. `base` returns what the link rests on,
/// from the tip as that plan leaves it.
///
/// # Errors
/// Those of [`create_link`], of `base`, and of [`CommitPlan::join`].
pub fn open_successor(
    tip: &LoadedThread,
    closing: CommitPlan,
    base: &dyn Fn(&LoadedThread) -> Result<Option<HistoryBase>, Error>,
    (ceiling, takes_draw): (ThreadCaps, bool),
    now: UnixTime,
) -> Result<LinkSuccessor, Error> {
    let mut after = closing.apply_to(tip)?;
    // The closed tip carries nothing any more; what it carried goes on to the link.
    after.head.value_mut().carried_spend = tip.head.value.carried_spend;
    let Some(id) = after.thread.value.next.clone() else {
        let of = &after.thread.value.id;
        return Err(Error::corrupt(format!(
            "the plan that closes {of} names no link"
        )));
    };
    let link = ChainLink {
        tip: &after,
        base: base(&after)?,
        ceiling,
        takes_draw,
    };
    let created = create_link(link, id, now)?;
    let mut loaded = loaded_link(&created, &after);
    let state = after.state_document()?;
    if !state.is_empty() {
        inherit_state(&mut loaded, state);
    }
    Ok(LinkSuccessor {
        plan: closing.join(created)?,
        loaded,
    })
}

/// Returns the plan that creates the next link of a chain, whose record stays and gets a new tip.
/// The link is created, due, and goes on with the conversation and the caps of the tip.
///
/// # Errors
/// `ErrorKind::Continued` if the thread is not the tip of its chain, `ErrorKind::Exceeded` if the
/// account of the chain cannot be opened again, `ErrorKind::Corrupt` for a base that contradicts
/// itself.
pub fn create_link(
    link: ChainLink<'_>,
    id: String,
    now: UnixTime,
) -> Result<Box<CommitPlan>, Error> {
    let ChainLink {
        tip,
        base,
        ceiling,
        takes_draw,
    } = link;
    let before = &tip.thread.value;
    if id::key(&tip.chain.value.tip) != id::key(&before.id) {
        return Err(Error::continued_by(&before.id, &tip.chain.value.tip));
    }
    id::check_id("id", &id)?;
    let thread = ThreadRecord {
        id,
        previous: Some(before.id.clone()),
        next: None,
        base,
        fork: None,
        outcome: None,
        result: None,
        created: now,
        ..ThreadRecord::clone(before)
    };
    if let Some(problem) = thread.find_base_contradiction() {
        let id = &thread.id;
        return Err(Error::corrupt(format!("the base of {id} {problem}")));
    }
    let head = continue_head(&thread, &tip.head.value);
    let loaded = LoadedThread {
        chain: tip.chain.clone(),
        above: tip.above.clone(),
        ..absent_thread(thread, head, Rc::clone(&tip.chain.value))
    };
    let moment = creation_context(&loaded, ceiling);
    let mut change = ThreadChange::new(&loaded, moment);
    change.chain_mut().tip = change.thread.id.clone();
    if !takes_draw {
        let drawn = change.update_accounts(&mut |path| path.start_drawing(ceiling.spend));
        drawn.map_err(no_money_error)?;
    }
    begin_thread(&mut change);
    change.into_head_plan()
}

/// Returns the head of a link: what a tip passes on. Its own counters begin anew; the cap on spend
/// bounds the chain, so what the links before it have spent goes along. What opens the link gives
/// it the mail, which the plan that closes the tip has taken from the tip.
fn continue_head(thread: &ThreadRecord, tip: &Head) -> Head {
    // The run of a link that was handed off goes on, and so do the counters that its caps bound.
    let used = match tip.status {
        ThreadStatus::Continued => tip.counters,
        _ => UsageCounters::default(),
    };
    Head {
        counters: UsageCounters {
            run_turns: used.run_turns,
            run_tokens: used.run_tokens,
            run_duration: used.run_duration,
            ..UsageCounters::default()
        },
        carried_spend: Some(tip.spend_under_cap()),
        context: tip.context,
        estimated: tip.estimated,
        window_bytes: tip.window_bytes,
        window: tip.window,
        prefix: tip.prefix.clone(),
        asked: tip.asked,
        asked_version: tip.asked_version,
        limits: tip.limits,
        run: tip.run,
        ..new_head(thread)
    }
}

/// Returns the link that a plan creates after a tip, at the store versions that were read.
fn loaded_link(created: &CommitPlan, tip: &LoadedThread) -> LoadedThread {
    let above = tip.above.iter().zip(&created.above);
    LoadedThread {
        thread: StoredRecord::absent(created.thread.clone()),
        head: StoredRecord::absent(created.head.clone()),
        chain: StoredRecord::new(tip.chain.version, Rc::clone(&created.chain)),
        above: above
            .map(|(read, value)| StoredRecord::new(read.version, Rc::clone(value)))
            .collect(),
        parent: tip.parent.clone(),
        state: None,
    }
}

/// Gives a new thread a state document, which its first entry records.
pub(crate) fn inherit_state(created: &mut LoadedThread, document: StateDocument) {
    created.head.value_mut().state = Some(StateSummary::of_inherited(&document));
    created.state = Some(StoredRecord::absent(StateRecord::new(document, 0)));
}

/// The account of a chain cannot be opened again for a new link.
fn no_money_error(refusal: LedgerRefusal) -> Error {
    let (need, room) = match refusal {
        LedgerRefusal::Short { need, room } => (need.get(), room.get()),
        _ => (0, 0),
    };
    let message = refusal.to_string();
    Error::exceeded_by(StatusCause::with_bound(
        "budget",
        "spend_exceeded",
        message,
        need,
        room,
    ))
}
