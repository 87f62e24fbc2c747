//! Resume of a thread that has ended: its conversation goes on in a successor, the next link of its
//! chain.
//!
//! One commit closes the tip with an entry that says where it went, creates the successor on all of
//! the tip's path, and begins its run. So a chain has one tip at each moment, and the pointer is
//! part of the hash chain. Nothing is cut: a provider is sent what it was sent before, and the
//! message. The status, outcome and result of the tip stay as they were. The account of the chain
//! is opened again from the top down, and thawed where a cancel or a kill had frozen it; what the
//! tip has still to pass on to its children stays with it.

use super::CommitDecision;
use super::checks::{check_complete, refused_error};
use super::start::{FirstStep, StartRequest, begin_start};
use crate::error::Error;
use crate::history::{CommitReason, Event, ThreadResumed};
use crate::json;
use crate::ledger::{AccountPath, LedgerRefusal};
use crate::limits::ThreadCaps;
use crate::plan::{
    CommitPlan, DecisionContext, LoadedThread, StoreWrite, ThreadChange, WriteCondition,
};
use crate::settings::PinnedSettings;
use crate::thread::{
    BASE_PARTS_MAX, CreationRecord, HistoryBase, HistoryPath, RecordFormat, StatusCause,
    ThreadStatus, open_successor, resume_key,
};
use crate::{id, key};

/// Parts of a base beyond the most, for links that were ended before they were handed off.
const PARTS_BEYOND_MAX: usize = 8;

/// A driver's request to resume a thread that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeRequest<'a> {
    /// The run that begins in the successor.
    pub start: StartRequest<'a>,
    /// Random digits for the id of the successor.
    pub random: &'a str,
    /// Hashes of the versions that ranges of the tip's path end with and that its base does not
    /// fix.
    pub hashes: Vec<(u64, String)>,
}

/// Resumes the tip of a chain that has ended. `pin` and `fresh` are as for a start.
///
/// # Errors
/// `ErrorKind::Continued` for a thread that was continued already, `ErrorKind::Refused` where an
/// account above is frozen, `ErrorKind::Exceeded` with what is available where the account cannot
/// be opened again, `ErrorKind::Invalid` without an input where nothing is to be answered.
pub fn resume(
    loaded: &LoadedThread,
    pin: Option<&PinnedSettings>,
    fresh: Option<(String, String)>,
    request: ResumeRequest<'_>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let ResumeRequest {
        start,
        random,
        hashes,
    } = request;
    start.check_names()?;
    check_may_resume(loaded, &start)?;
    let thread = &loaded.thread.value;
    let next = id::generate_id(thread.directive.as_deref(), moment.now, random);
    let closing = close_tip(loaded, &next, &start, moment)?;
    let base = |tip: &LoadedThread| whole_base(tip, &hashes);
    let opened = open_successor(loaded, *closing, &base, (moment.ceiling, false), moment.now);
    let mut successor = opened?;
    let (tip, head) = (&loaded.head.value, successor.loaded.head.value_mut());
    head.carried_turns = carried_turns(loaded);
    (head.mail_from, head.mail_to) = (tip.mail_from, tip.mail_to);
    let remembered = remember_key(loaded, &start, &next)?;
    let begin = |first| {
        let start = (start.clone(), first);
        begin_start(&successor.loaded, pin, fresh.clone(), start, moment)
    };
    let begun = match begin(FirstStep::ModelCall)? {
        // Its context leaves no room for a reply, and it is not in the store yet.
        CommitDecision::NeedsWindow(_) => begin(FirstStep::Pause)?,
        begun => begun,
    };
    let CommitDecision::Commit(mut begun) = begun else {
        return Ok(begun);
    };
    begun.writes.push(remembered);
    let plan = successor.plan.join(begun)?;
    Ok(CommitDecision::Commit(plan))
}

/// Model replies along the path of a thread: what a successor is sent again.
fn carried_turns(loaded: &LoadedThread) -> u64 {
    let head = &loaded.head.value;
    let own = head.counters.turns.saturating_sub(head.unusable);
    head.carried_turns.saturating_add(own)
}

fn check_may_resume(loaded: &LoadedThread, start: &StartRequest<'_>) -> Result<(), Error> {
    check_may_have_successor(loaded)?;
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    if !head.status.is_terminal() {
        return Err(refused_error(loaded, "it has not ended: start it"));
    }
    // A directive that was ended before its first call begins with its opening.
    let opens = thread.directive.is_some() && head.prefix.is_empty();
    let answers = head.asked || opens || head.mail_count() > 0;
    if start.input.is_none() && !answers {
        let problem = format!(
            "is missing: {} has nothing left to answer, so give the message to go on with",
            thread.id
        );
        return Err(Error::invalid("input", "", problem));
    }
    Ok(())
}

/// Checks that an agent may resume a thread: it is not under way, and its successor would have the
/// money that its account claims. The driver that resumes it checks again.
///
/// # Errors
/// Those of [`resume`], and `ErrorKind::Refused` for a thread that is under way.
pub fn check_may_be_resumed(loaded: &LoadedThread, ceiling: ThreadCaps) -> Result<(), Error> {
    check_complete(loaded)?;
    let status = loaded.head.value.status;
    if matches!(status, ThreadStatus::Idle | ThreadStatus::Suspended) {
        return Ok(());
    }
    if !status.is_terminal() {
        let advice = "it has not ended: send_message reaches it";
        return Err(refused_error(loaded, advice));
    }
    check_may_have_successor(loaded)?;
    // An account of its own that has closed reserves what it has not reported from the one above.
    let account = &loaded.chain.value.account;
    let closed = loaded.chain.value.has_account() && !account.is_open();
    let above = loaded.above.first().filter(|_| closed);
    if let (Some(limit), Some(above)) = (account.limit, above) {
        let need = limit.saturating_sub(account.reported);
        let room = above.value.account.room(ceiling.spend);
        if need > room {
            let refusal = LedgerRefusal::Short { need, room };
            return Err(refused_error(
                loaded,
                &format!("it cannot go on: {refusal}"),
            ));
        }
    }
    Ok(())
}

/// Checks that the thread is the tip of its chain and that a successor can be made of it.
fn check_may_have_successor(loaded: &LoadedThread) -> Result<(), Error> {
    let (thread, head) = (&loaded.thread.value, &loaded.head.value);
    if !loaded.is_tip() || thread.next.is_some() || head.status == ThreadStatus::Continued {
        return Err(match &thread.next {
            Some(_) => refused_error(loaded, ""),
            None => Error::continued_by(&thread.id, &loaded.chain.value.tip),
        });
    }
    check_complete(loaded)?;
    if loaded.chain.value.spawned.is_none() && loaded.chain.value.children > 0 {
        let advice = "an earlier version has recorded its children, which a successor would not \
                      find: start a new thread";
        return Err(refused_error(loaded, advice));
    }
    if let Some(owner) = frozen_owner(loaded) {
        let advice = format!("the account of {owner}, which it draws on, is frozen: resume that");
        return Err(refused_error(loaded, &advice));
    }
    Ok(())
}

/// Returns the first chain above whose frozen account keeps the thread from drawing on its own: the
/// account of the thread itself is thawed.
fn frozen_owner(loaded: &LoadedThread) -> Option<&str> {
    let chain = &loaded.chain.value;
    if chain.has_account() && chain.account.is_open() {
        return None;
    }
    for (above, owner) in loaded.above.iter().zip(&chain.above) {
        let account = &above.value.account;
        if account.frozen {
            return Some(owner);
        }
        if account.is_open() {
            break;
        }
    }
    None
}

/// Returns the plan of the entry that says where the thread goes on.
fn close_tip(
    loaded: &LoadedThread,
    next: &str,
    start: &StartRequest<'_>,
    moment: DecisionContext<'_>,
) -> Result<Box<CommitPlan>, Error> {
    let mut change = ThreadChange::new(loaded, moment);
    let preview = start.input.as_ref().map(ThreadResumed::preview_of);
    change.push_event(Event::ThreadResumed(ThreadResumed {
        new_thread_id: next.to_owned(),
        directive: loaded.thread.value.directive.clone(),
        message_preview: preview.unwrap_or_default(),
        reconstructed_turns: carried_turns(loaded),
    }));
    change.thread_mut().next = Some(next.to_owned());
    let last = change.chain.last_child_number();
    change.chain_mut().spawned = Some(last);
    // Its mail is the successor's, and so is what it carried. An end that it has still to pass on
    // is not for children that the successor spawns.
    change.head.carried_spend = None;
    change.head.mail_from = change.head.mail_to;
    change.head.due = None;
    if change.head.sweep.is_some() {
        change.head.sweep_to.get_or_insert(last);
    }
    if change.chain.has_account() && change.chain.account.frozen {
        let thawed = change.update_accounts(&mut AccountPath::thaw);
        thawed.map_err(|refusal| refused_error(loaded, &refusal.to_string()))?;
    }
    change.into_plan(CommitReason::Resumed)
}

/// Returns the base of the successor: the whole path of the tip, with the entry that closes it.
fn whole_base(tip: &LoadedThread, hashes: &[(u64, String)]) -> Result<Option<HistoryBase>, Error> {
    let head = &tip.head.value;
    let path = HistoryPath::of(&tip.thread.value, head.version);
    // Some more are allowed: a thread on so many is handed off before its first call, and may be
    // ended before that.
    let most = BASE_PARTS_MAX + PARTS_BEYOND_MAX;
    if path.ranges.len() > most {
        let (parts, most) = (path.ranges.len() as u64, most as u64);
        let message = format!(
            "{} rests on {parts} pieces of earlier threads, and a thread rests on at most {most}: \
             start a new thread",
            tip.thread.value.id
        );
        let code = "base_parts_exceeded";
        return Err(Error::exceeded_by(StatusCause::with_bound(
            "limit", code, message, parts, most,
        )));
    }
    path.to_base(&|version| {
        if version == head.version {
            return Some(head.hash.clone());
        }
        let known = hashes.iter().find(|(of, _)| *of == version);
        known.map(|(_, hash)| hash.clone())
    })
}

/// Returns the write by which the request is known when it is repeated.
fn remember_key(
    loaded: &LoadedThread,
    start: &StartRequest<'_>,
    next: &str,
) -> Result<StoreWrite, Error> {
    let record = CreationRecord {
        format: RecordFormat::CURRENT,
        draft: start.digest(),
        thread: next.to_owned(),
    };
    Ok(StoreWrite::Put {
        collection: key::SEEN,
        key: resume_key(&loaded.thread.value.chain, start.key)?,
        expect: WriteCondition::Absent,
        value: json::to_text(&record),
    })
}
